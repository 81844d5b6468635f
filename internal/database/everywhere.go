package database

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// ActiveOperations calls each for every operation, of all subscriptions, that is not terminal, in no order. It reads all
// partitions: it is for start-up and for the slow safety net, not for requests.
func (db *DB) ActiveOperations(ctx context.Context, each func(*Item[OperationDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.properties.endTime)"
	return everywhere(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
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
	return everywhere(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		if item.Removed != nil {
			return nil
		}
		return each(item)
	})
}

// UnemptiedSubscriptions calls each for every subscription that is Deleted and not known to have no clusters left; see
// ActiveOperations.
func (db *DB) UnemptiedSubscriptions(ctx context.Context, each func(*Item[SubscriptionDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.properties.subscription.state = @state AND NOT IS_DEFINED(c.properties.emptied)"
	return everywhere(ctx, db.subscriptions, query, func(item *Item[SubscriptionDocument]) error {
		if item.Removed != nil {
			return nil
		}
		return each(item)
	}, azcosmos.QueryParameter{Name: "@state", Value: string(hub.Deleted)})
}

// everywhere calls each for the documents of all partitions that a query finds, page by page. The query has the
// collection's kind as @kind.
func everywhere[T any](ctx context.Context, c *Collection[T], query string, each func(*Item[T]) error, parameters ...azcosmos.QueryParameter) error {
	parameters = append(parameters, azcosmos.QueryParameter{Name: "@kind", Value: string(c.kind)})
	var continuation *string
	for {
		var page azcosmos.QueryItemsResponse
		err := c.db.connection.do(ctx, func(ctx context.Context, client *client) error {
			var err error
			// An empty partition key asks across all of them.
			page, err = client.resources.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{
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
			item, err := c.decode(document)
			if err != nil {
				return err
			}
			if err := each(item); err != nil {
				return err
			}
		}
		if page.ContinuationToken == nil || *page.ContinuationToken == "" {
			return nil
		}
		continuation = page.ContinuationToken
	}
}
