package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/admin/pkg/dump"
	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Questions returns the questions for the layers that admin uses itself. Each one makes the layer read its store.
func Questions(db *database.DB, fleet clusterservicev1.ClusterServiceClient, bundles dump.BundleReader) layers.Own {
	return layers.Own{
		CosmosDB: db.Ping,
		ClusterService: func(ctx context.Context) error {
			_, err := fleet.ListProvisionShards(ctx, &clusterservicev1.ListProvisionShardsRequest{})
			return apierror.FromGRPC(err)
		},
		MaestroServer: func(ctx context.Context) error {
			_, _, err := bundles.Bundles(ctx, []string{uuid.Nil.String()})
			return err
		},
	}
}
