package database

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// MaxPageSize is the largest page that List returns.
const MaxPageSize = 1000

// Collection reads the documents of one kind.
type Collection[T any] struct {
	db   *DB
	kind Kind
	// ttl returns how long a document is kept after its last write; 0 means forever.
	ttl func(value *T) time.Duration
}

func newCollection[T any](db *DB, kind Kind) *Collection[T] {
	return &Collection[T]{db: db, kind: kind}
}

// Kind returns the kind of the collection's documents.
func (c *Collection[T]) Kind() Kind { return c.kind }

// Get returns a document. The error has the kind ResourceNotFound if the document does not exist or is a tombstone.
func (c *Collection[T]) Get(ctx context.Context, key Key) (*Item[T], error) {
	item, err := c.Find(ctx, key)
	if err != nil {
		return nil, err
	}
	if item == nil || item.Removed != nil {
		return nil, apierror.New(apierror.ResourceNotFound, "The resource '%s' was not found.", key.ResourceID)
	}
	return item, nil
}

// Find returns a document, which may be a tombstone (Removed is set), or nil if it does not exist.
func (c *Collection[T]) Find(ctx context.Context, key Key) (*Item[T], error) {
	document, err := c.db.readDocument(ctx, key.SubscriptionID, documentID(c.kind, key))
	if err != nil || document == nil {
		return nil, err
	}
	return c.decode(document)
}

// FindIfChanged returns a document unless it still has the given ETag: then item is nil and changed is false, and
// Cosmos DB does not send the document. With an empty ETag it is Find.
func (c *Collection[T]) FindIfChanged(ctx context.Context, key Key, etag string) (item *Item[T], changed bool, err error) {
	if etag == "" {
		item, err = c.Find(ctx, key)
		return item, true, err
	}
	document, unchanged, err := c.db.readChanged(ctx, key.SubscriptionID, documentID(c.kind, key), etag)
	if err != nil || unchanged || document == nil {
		return nil, !unchanged, err
	}
	item, err = c.decode(document)
	return item, true, err
}

// List returns one page of a subscription's documents, without tombstones, in order of the lower-case ARM resource ID.
// prefix selects resource IDs in any casing; an empty prefix selects all. limit is 1 to MaxPageSize. The continuation
// is the last resource ID of the page, or empty on the last page. Documents that exist during the whole listing appear
// exactly once.
func (c *Collection[T]) List(ctx context.Context, subscriptionID, prefix, continuation string, limit int) (items []*Item[T], next string, err error) {
	if limit < 1 || limit > MaxPageSize {
		return nil, "", fmt.Errorf("listing a page of %d items: the size must be 1 to %d", limit, MaxPageSize)
	}
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.key > @after AND STARTSWITH(c.key, @prefix) AND NOT IS_DEFINED(c.deletionTimestamp) ORDER BY c.key"
	documents, err := c.db.queryDocuments(ctx, strings.ToLower(subscriptionID), query, []azcosmos.QueryParameter{
		{Name: "@kind", Value: string(c.kind)},
		{Name: "@after", Value: continuation},
		{Name: "@prefix", Value: strings.ToLower(prefix)},
	}, limit+1)
	if err != nil {
		return nil, "", err
	}
	for _, document := range documents {
		if len(items) == limit {
			return items, items[limit-1].Key.lower(), nil
		}
		item, err := c.decode(document)
		if err != nil {
			return nil, "", err
		}
		items = append(items, item)
	}
	return items, "", nil
}

// ForEach calls each for every document that List returns, over all pages.
func (c *Collection[T]) ForEach(ctx context.Context, subscriptionID, prefix string, each func(*Item[T]) error) error {
	continuation := ""
	for {
		items, next, err := c.List(ctx, subscriptionID, prefix, continuation, 200)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := each(item); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		continuation = next
	}
}

// readDocument returns a stored document of a partition, or nil if it does not exist.
func (db *DB) readDocument(ctx context.Context, partition, id string) ([]byte, error) {
	document, _, err := db.readChanged(ctx, partition, id, "")
	return document, err
}

// readChanged returns a stored document, or nil if it does not exist or still has the given ETag.
func (db *DB) readChanged(ctx context.Context, partition, id, etag string) (document []byte, unchanged bool, err error) {
	if etag != "" {
		// azcosmos has no option for this condition on items; Cosmos DB supports it for all reads.
		ctx = policy.WithHTTPHeader(ctx, http.Header{"If-None-Match": {etag}})
	}
	err = db.connection.do(ctx, func(ctx context.Context, client *client) error {
		response, err := client.documents(partition).ReadItem(ctx, azcosmos.NewPartitionKeyString(partition), id, nil)
		if err != nil {
			return err
		}
		document, unchanged = response.Value, response.RawResponse.StatusCode == http.StatusNotModified
		return nil
	})
	switch {
	case statusOf(err) == http.StatusNotFound:
		return nil, false, nil
	case err != nil:
		return nil, false, failure(err, "reading the document %s", id)
	case unchanged:
		return nil, true, nil
	}
	return document, false, nil
}

// queryDocuments returns at most limit documents of a partition. Cosmos DB may return smaller and even empty pages before the last
// page.
func (db *DB) queryDocuments(ctx context.Context, partition, query string, parameters []azcosmos.QueryParameter, limit int) ([][]byte, error) {
	var documents [][]byte
	var continuation *string
	for {
		var page azcosmos.QueryItemsResponse
		err := db.connection.do(ctx, func(ctx context.Context, client *client) error {
			var err error
			page, err = client.documents(partition).NewQueryItemsPager(query, azcosmos.NewPartitionKeyString(partition), &azcosmos.QueryOptions{
				PageSizeHint:      int32(min(limit-len(documents), MaxPageSize)),
				ContinuationToken: continuation,
				QueryParameters:   parameters,
			}).NextPage(ctx)
			return err
		})
		if err != nil {
			return nil, failure(err, "running the query %q", query)
		}
		documents = append(documents, page.Items...)
		if len(documents) >= limit || page.ContinuationToken == nil || *page.ContinuationToken == "" {
			return documents[:min(limit, len(documents))], nil
		}
		continuation = page.ContinuationToken
	}
}

// Children calls each for every document whose ARM resource ID is below the resource's, of any kind and in no order.
// Tombstones are left out. DecodeChange decodes the document of a change.
func (db *DB) Children(ctx context.Context, key Key, each func(Change) error) error {
	const query = "SELECT * FROM c WHERE STARTSWITH(c.key, @prefix) AND NOT IS_DEFINED(c.deletionTimestamp)"
	parameters := []azcosmos.QueryParameter{{Name: "@prefix", Value: key.lower() + "/"}}
	return db.pages(ctx, azcosmos.NewPartitionKeyString(strings.ToLower(key.SubscriptionID)), query, parameters, func(document []byte) error {
		change, err := readChange(document)
		if err != nil {
			return err
		}
		return each(change)
	})
}
