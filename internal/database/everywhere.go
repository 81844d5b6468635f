package database

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// ActiveOperations calls each for every operation, of all subscriptions, that is not terminal, in no order. It reads all
// partitions: it is for start-up, for the slow safety net and for what SREs ask of a whole region, not for ARM's requests.
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

// ProvisioningStates calls each for every live document, of all subscriptions, that has a provisioning state, with no more
// of it than that; see ActiveOperations.
func (db *DB) ProvisioningStates(ctx context.Context, each func(Change) error) error {
	const query = "SELECT c.kind, c.partitionKey, c.resourceId, {'provisioningState': c.properties.provisioningState} AS properties " +
		"FROM c WHERE IS_DEFINED(c.properties.provisioningState) AND NOT IS_DEFINED(c.deletionTimestamp)"
	return db.pages(ctx, azcosmos.NewPartitionKey(), query, nil, func(document []byte) error {
		change, err := readChange(document)
		if err != nil {
			return err
		}
		return each(change)
	})
}

// everywhere calls each for the documents of all partitions that a query finds. The query has the collection's kind as
// @kind.
func everywhere[T any](ctx context.Context, c *Collection[T], query string, each func(*Item[T]) error, parameters ...azcosmos.QueryParameter) error {
	parameters = append(parameters, azcosmos.QueryParameter{Name: "@kind", Value: string(c.kind)})
	// An empty partition key asks across all of them.
	return c.db.pages(ctx, azcosmos.NewPartitionKey(), query, parameters, func(document []byte) error {
		item, err := c.decode(document)
		if err != nil {
			return err
		}
		return each(item)
	})
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
