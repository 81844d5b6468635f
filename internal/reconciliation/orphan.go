package reconciliation

import (
	"context"
	"fmt"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Exists reports whether Cosmos DB has the incarnation of a drift.
func Exists(ctx context.Context, db *database.DB, f Drift) (bool, error) {
	switch f.Kind {
	case database.ClusterKind:
		item, err := db.Clusters().Find(ctx, f.Key)
		return item != nil && item.Removed == nil && item.Value.UID == f.UID, err
	case database.NodePoolKind:
		item, err := db.NodePools().Find(ctx, f.Key)
		return item != nil && item.Removed == nil && item.Value.UID == f.UID, err
	case database.ExternalAuthKind:
		item, err := db.ExternalAuths().Find(ctx, f.Key)
		return item != nil && item.Removed == nil && item.Value.UID == f.UID, err
	}
	return false, fmt.Errorf("unsupported kind %q", f.Kind)
}

// DeleteFromFleet makes Cluster Service delete an incarnation. It is idempotent.
func DeleteFromFleet(ctx context.Context, fleet clusterservicev1.ClusterServiceClient, kind database.Kind, resourceID, uid, clusterUID string) error {
	var err error
	switch kind {
	case database.ClusterKind:
		_, err = fleet.DeleteCluster(ctx, &clusterservicev1.DeleteClusterRequest{Uid: uid, ResourceId: resourceID})
	case database.NodePoolKind:
		_, err = fleet.DeleteNodePool(ctx, &clusterservicev1.DeleteNodePoolRequest{Uid: uid, ClusterUid: clusterUID, ResourceId: resourceID})
	case database.ExternalAuthKind:
		_, err = fleet.DeleteExternalAuth(ctx, &clusterservicev1.DeleteExternalAuthRequest{Uid: uid, ClusterUid: clusterUID, ResourceId: resourceID})
	default:
		return fmt.Errorf("unsupported kind %q", kind)
	}
	return apierror.FromGRPC(err)
}
