package database

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// UnreadableError says that documents were passed over that cannot be read: another release wrote them, or something that is none of
// ours. All others that were asked for have been given: one such document must not keep the rest of a region from being found.
type UnreadableError struct {
	// Count is how many there are, and First why the first of them cannot be read.
	Count int
	First error
}

// Error names the first.
func (u *UnreadableError) Error() string {
	return fmt.Sprintf("%d documents cannot be read, the first because of %v", u.Count, u.First)
}

// Unwrap gives why the first cannot be read.
func (u *UnreadableError) Unwrap() error { return u.First }

// note counts a document.
func (u *UnreadableError) note(err error) {
	if u.Count++; u.First == nil {
		u.First = err
	}
}

// after is what a search that ended with err tells its caller.
func (u *UnreadableError) after(err error) error {
	if err == nil && u.Count > 0 {
		return u
	}
	return err
}

// ActiveOperations calls each for every operation, of all subscriptions, that is not terminal, in no order. It reads all
// partitions: it is for start-up, for the slow safety net and for what SREs ask of a whole region, not for ARM's requests. An
// error of type *Unreadable says that each was called for all but some.
func (db *DB) ActiveOperations(ctx context.Context, each func(*Item[OperationDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.properties.endTime)"
	return forEachDocument(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		if item.Value.Status.Terminal() || item.Removed != nil {
			return nil
		}
		return each(item)
	})
}

// UnnotifiedOperations calls each for every operation that has ended and whose notification has not; see
// ActiveOperations.
func (db *DB) UnnotifiedOperations(ctx context.Context, each func(*Item[OperationDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND IS_DEFINED(c.properties.notificationUri) AND IS_DEFINED(c.properties.endTime) AND NOT IS_DEFINED(c.properties.notification.endTime)"
	return forEachDocument(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		if item.Removed != nil {
			return nil
		}
		return each(item)
	})
}

// SubscriptionsToEmpty calls each for every subscription that is Deleted and not known to have no clusters left; see
// ActiveOperations.
func (db *DB) SubscriptionsToEmpty(ctx context.Context, each func(*Item[SubscriptionDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.properties.subscription.state = @state AND NOT IS_DEFINED(c.properties.emptied)"
	return forEachDocument(ctx, db.subscriptions, query, func(item *Item[SubscriptionDocument]) error {
		if item.Removed != nil {
			return nil
		}
		return each(item)
	}, azcosmos.QueryParameter{Name: "@state", Value: string(hub.Deleted)})
}

// ProvisioningStates calls each for every live document, of all subscriptions, that has a provisioning state, with no more
// of it than that; see ActiveOperations.
func (db *DB) ProvisioningStates(ctx context.Context, each func(Change) error) error {
	const query = "SELECT c.kind, c.partitionKey, c.resourceId, {'provisioningState': c.properties.provisioningState} AS properties " +
		"FROM c WHERE IS_DEFINED(c.properties.provisioningState) AND NOT IS_DEFINED(c.deletionTimestamp)"
	var unreadable UnreadableError
	return unreadable.after(db.pages(ctx, azcosmos.NewPartitionKey(), query, nil, func(document []byte) error {
		change, err := readChange(document)
		if err != nil {
			unreadable.note(err)
			return nil
		}
		return each(change)
	}))
}

// forEachDocument calls each for the documents of all partitions that a query finds; see ActiveOperations. The query has the
// collection's kind as @kind.
func forEachDocument[T any](ctx context.Context, c *Collection[T], query string, each func(*Item[T]) error, parameters ...azcosmos.QueryParameter) error {
	parameters = append(parameters, azcosmos.QueryParameter{Name: "@kind", Value: string(c.kind)})
	// An empty partition key asks across all of them.
	var unreadable UnreadableError
	return unreadable.after(c.db.pages(ctx, azcosmos.NewPartitionKey(), query, parameters, func(document []byte) error {
		item, err := c.decode(document)
		if err != nil {
			unreadable.note(err)
			return nil
		}
		return each(item)
	}))
}

// pages calls each for everything that a query without an order finds, page by page.
func (db *DB) pages(ctx context.Context, partition azcosmos.PartitionKey, query string, parameters []azcosmos.QueryParameter, each func(document []byte) error) error {
	var continuation *string
	for {
		var page azcosmos.QueryItemsResponse
		err := db.connection.do(ctx, func(ctx context.Context, client *client) error {
			var err error
			page, err = client.resources.NewQueryItemsPager(query, partition, &azcosmos.QueryOptions{
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
