package server

import (
	"context"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// nodePoolType is hcpOpenShiftClusters/nodePools.
type nodePoolType struct{}

var _ resourceType[database.NodePoolDocument, hub.NodePool] = nodePoolType{}

func (nodePoolType) name() string { return hub.NodePoolResourceType }

func (nodePoolType) collection(db *database.DB) *database.Collection[database.NodePoolDocument] {
	return db.NodePools()
}

func (nodePoolType) parts(d *database.NodePoolDocument) parts[hub.NodePool] {
	return parts[hub.NodePool]{&d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID, &d.NodePool}
}

func (nodePoolType) common(pool *hub.NodePool) *hub.Resource { return &pool.Resource }

func (nodePoolType) encode(version *versions.Version, d *database.NodePoolDocument) any {
	return version.EncodeNodePool(&d.NodePool, d.ProvisioningState, &d.Status)
}

func (nodePoolType) decode(version *versions.Version, body *wire.Body, base *hub.NodePool, defaults bool) *hub.NodePool {
	return version.DecodeNodePool(body, base, defaults)
}

func (nodePoolType) begin(_ *request, parent *database.ClusterDocument) (database.NodePoolDocument, error) {
	return database.NodePoolDocument{ClusterUID: parent.UID}, nil
}

// complete fills in what a pool takes from its cluster.
func (nodePoolType) complete(s *Server, _ *request, pool *hub.NodePool, _ string, parent *database.ClusterDocument) {
	pool.Location = s.Rules.Location(pool.Location)
	pool.Properties.Platform.VMSize = s.Rules.VMSize(pool.Properties.Platform.VMSize)
	if pool.Properties.Platform.SubnetID == "" {
		pool.Properties.Platform.SubnetID = parent.Cluster.Properties.Platform.SubnetID
	}
	// Newest first: during an upgrade of the control plane its nodes may not be newer than the oldest.
	if active := parent.Status.ActiveVersions; pool.Properties.Version.ID == "" && len(active) > 0 {
		pool.Properties.Version.ID = active[len(active)-1]
	}
}

func (nodePoolType) validate(s *Server, rq *request, now *hub.NodePool, stored *database.NodePoolDocument, parent *database.ClusterDocument) []apierror.Violation {
	change := validation.NodePoolChange{
		New: now, Cluster: &parent.Cluster, ActiveVersions: parent.Status.ActiveVersions, Subscription: rq.subscription,
	}
	if stored != nil {
		change.Old = &stored.NodePool
	}
	return s.Rules.NodePool(change)
}

func (nodePoolType) neighbours(*Server, context.Context, *request, *hub.NodePool, string) ([]apierror.Violation, error) {
	return nil, nil
}

func (nodePoolType) retain(now, stored *hub.NodePool) {
	now.Location, now.Properties.Platform = stored.Location, stored.Properties.Platform
}

// Nothing is reserved for a pool.
func (nodePoolType) reservations(database.Key, *database.NodePoolDocument) map[database.Key]database.ReservationDocument {
	return nil
}

func (nodePoolType) taken(*database.NodePoolDocument, []database.ReservationDocument) error {
	return nil
}

func (nodePoolType) dispatch(ctx context.Context, to Dispatcher, document *database.NodePoolDocument, deleting bool, correlationID string) {
	to.NodePool(ctx, document, deleting, correlationID)
}
