package database

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// SubnetHasNodePool reports whether a node pool of the subscription uses a subnet. ARM IDs are compared in any casing. Unlike
// clusters, node pools reserve no subnet, because those of one cluster may share one.
func (db *DB) SubnetHasNodePool(ctx context.Context, subscriptionID, subnetID string) (bool, error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND STRINGEQUALS(c.properties.nodePool.properties.platform.subnetId, @subnet, true) AND NOT IS_DEFINED(c.deletionTimestamp)"
	documents, err := db.queryDocuments(ctx, strings.ToLower(subscriptionID), query, []azcosmos.QueryParameter{
		{Name: "@kind", Value: string(NodePoolKind)},
		{Name: "@subnet", Value: subnetID},
	}, 1)
	return len(documents) > 0, err
}
