package database

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// ActiveOperations calls each for every operation, of all subscriptions, that is not terminal, in no order. It reads all
// partitions: it is for start-up and for the slow safety net, not for requests.
func (db *DB) ActiveOperations(ctx context.Context, each func(*Item[OperationDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.properties.endTime)"
	var continuation *string
	for {
		var page azcosmos.QueryItemsResponse
		err := db.connection.do(ctx, func(ctx context.Context, client *client) error {
			var err error
			// An empty partition key asks across all of them.
			page, err = client.resources.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{
				PageSizeHint:      200,
				ContinuationToken: continuation,
				QueryParameters:   []azcosmos.QueryParameter{{Name: "@kind", Value: string(OperationKind)}},
			}).NextPage(ctx)
			return err
		})
		if err != nil {
			return failure(err, "listing the active operations")
		}
		for _, document := range page.Items {
			item, err := db.operations.decode(document)
			if err != nil {
				return err
			}
			if item.Value.Status.Terminal() || item.Removed != nil {
				continue
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
