package database

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// UnreadableError reports documents that could not be decoded and were skipped: another release wrote them, or another
// program. All other documents of the request were processed, so that one such document does not hide the rest of a
// region.
type UnreadableError struct {
	// Count is the number of skipped documents. First is the error of the first one.
	Count int
	First error
}

// Error implements error.
func (u *UnreadableError) Error() string {
	return fmt.Sprintf("%d documents cannot be decoded, the first because of: %v", u.Count, u.First)
}

// Unwrap returns the error of the first document.
func (u *UnreadableError) Unwrap() error { return u.First }

// note counts a skipped document.
func (u *UnreadableError) note(err error) {
	if u.Count++; u.First == nil {
		u.First = err
	}
}

// orElse returns err, or the UnreadableError if err is nil and documents were skipped.
func (u *UnreadableError) orElse(err error) error {
	if err == nil && u.Count > 0 {
		return u
	}
	return err
}

// ActiveOperations calls each for every operation of all subscriptions that is not terminal, in no order. It reads all
// partitions: use it at startup, for periodic resyncs and for requests of SREs about a region, never for ARM requests.
// An error of type *UnreadableError means that some documents were skipped.
func (db *DB) ActiveOperations(ctx context.Context, each func(*Item[OperationDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.properties.endTime)"
	return forEachDocument(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		if item.Value.Status.Terminal() || item.Removed != nil {
			return nil
		}
		return each(item)
	})
}

// UnnotifiedOperations calls each for every terminal operation whose notification has not ended; see ActiveOperations.
func (db *DB) UnnotifiedOperations(ctx context.Context, each func(*Item[OperationDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND IS_DEFINED(c.properties.notificationUri) AND IS_DEFINED(c.properties.endTime) AND NOT IS_DEFINED(c.properties.notification.endTime)"
	return forEachDocument(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		if item.Removed != nil {
			return nil
		}
		return each(item)
	})
}

// SubscriptionsToEmpty calls each for every Deleted subscription that may have clusters left; see ActiveOperations.
func (db *DB) SubscriptionsToEmpty(ctx context.Context, each func(*Item[SubscriptionDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.properties.subscription.state = @state AND NOT IS_DEFINED(c.properties.emptied)"
	return forEachDocument(ctx, db.subscriptions, query, func(item *Item[SubscriptionDocument]) error {
		if item.Removed != nil {
			return nil
		}
		return each(item)
	}, azcosmos.QueryParameter{Name: "@state", Value: string(hub.Deleted)})
}

// ProvisioningStates calls each for every document of all subscriptions that has a provisioning state. The changes
// contain no other properties. See ActiveOperations.
func (db *DB) ProvisioningStates(ctx context.Context, each func(Change) error) error {
	const query = "SELECT c.kind, c.partitionKey, c.resourceId, {'provisioningState': c.properties.provisioningState} AS properties " +
		"FROM c WHERE IS_DEFINED(c.properties.provisioningState) AND NOT IS_DEFINED(c.deletionTimestamp)"
	var unreadable UnreadableError
	return unreadable.orElse(db.pages(ctx, azcosmos.NewPartitionKey(), query, nil, func(document []byte) error {
		change, err := readChange(document)
		if err != nil {
			unreadable.note(err)
			return nil
		}
		return each(change)
	}))
}

// forEachDocument calls each for the documents of all partitions that a query returns; see ActiveOperations. The query
// refers to the collection's kind as @kind.
func forEachDocument[T any](ctx context.Context, c *Collection[T], query string, each func(*Item[T]) error, parameters ...azcosmos.QueryParameter) error {
	parameters = append(parameters, azcosmos.QueryParameter{Name: "@kind", Value: string(c.kind)})
	// An empty partition key queries all partitions.
	var unreadable UnreadableError
	return unreadable.orElse(c.db.pages(ctx, azcosmos.NewPartitionKey(), query, parameters, func(document []byte) error {
		item, err := c.decode(document)
		if err != nil {
			unreadable.note(err)
			return nil
		}
		return each(item)
	}))
}

// pages calls each for every result of a query without an order, page by page.
func (db *DB) pages(ctx context.Context, partition azcosmos.PartitionKey, query string, parameters []azcosmos.QueryParameter, each func(document []byte) error) error {
	return db.pagesOf(ctx, func(c *client) *azcosmos.ContainerClient { return c.resources }, partition, query, parameters, each)
}

// pagesOf calls each for the documents that a query returns from a partition of a container.
func (db *DB) pagesOf(ctx context.Context, container func(*client) *azcosmos.ContainerClient, partition azcosmos.PartitionKey, query string, parameters []azcosmos.QueryParameter, each func(document []byte) error) error {
	var continuation *string
	for {
		var page azcosmos.QueryItemsResponse
		err := db.connection.do(ctx, func(ctx context.Context, client *client) error {
			var err error
			page, err = container(client).NewQueryItemsPager(query, partition, &azcosmos.QueryOptions{
				PageSizeHint:      200,
				ContinuationToken: continuation,
				QueryParameters:   parameters,
			}).NextPage(ctx)
			return err
		})
		if err != nil {
			return failure(err, "running the query %q", query)
		}
		for _, document := range page.Items {
			if err := each(document); err != nil {
				return err
			}
		}
		if page.ContinuationToken == nil || *page.ContinuationToken == "" {
			return nil
		}
		continuation = page.ContinuationToken
	}
}
