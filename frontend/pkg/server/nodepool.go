package server

import (
	"context"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// nodePoolType implements hcpOpenShiftClusters/nodePools.
type nodePoolType struct{}

var _ resourceType[database.NodePoolDocument, hub.NodePool] = nodePoolType{}

func (nodePoolType) name() string { return hub.NodePoolResourceType }

func (nodePoolType) collection(db *database.DB) *database.Collection[database.NodePoolDocument] {
	return db.NodePools()
}

func (nodePoolType) fields(d *database.NodePoolDocument) documentFields[hub.NodePool] {
	return documentFields[hub.NodePool]{&d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID, &d.NodePool, nil}
}

func (nodePoolType) common(pool *hub.NodePool) *hub.Resource { return &pool.Resource }

func (nodePoolType) encode(version *versions.Version, d *database.NodePoolDocument) any {
	return version.EncodeNodePool(&d.NodePool, d.ProvisioningState, &d.Status)
}

func (nodePoolType) decode(version *versions.Version, body *wire.Body, base *hub.NodePool, defaults bool) *hub.NodePool {
	pool := version.DecodeNodePool(body, base, defaults)
	pool.Properties.Labels = lastLabels(pool.Properties.Labels)
	return pool
}

// lastLabels returns the labels without repeated keys. The last value of a key counts, as in the published service.
func lastLabels(labels []hub.Label) []hub.Label {
	index := make(map[string]int, len(labels))
	kept := labels[:0:0]
	for _, label := range labels {
		if i, found := index[label.Key]; found {
			kept[i] = label
			continue
		}
		index[label.Key] = len(kept)
		kept = append(kept, label)
	}
	return kept
}

func (nodePoolType) newDocument(_ *request, parent *database.ClusterDocument) (database.NodePoolDocument, []apierror.Violation) {
	return database.NodePoolDocument{ClusterUID: parent.UID}, nil
}

// setDefaults sets the values that a node pool inherits from its cluster.
func (nodePoolType) setDefaults(s *Server, _ *request, pool *hub.NodePool, _ string, parent *database.ClusterDocument) {
	pool.Location = s.Rules.Location(pool.Location)
	if pool.Properties.Platform.SubnetID == "" {
		pool.Properties.Platform.SubnetID = parent.Cluster.Properties.Platform.SubnetID
	}
}

func (nodePoolType) validate(s *Server, rq *request, now *hub.NodePool, stored *database.NodePoolDocument, parent *database.ClusterDocument) []apierror.Violation {
	change := validation.NodePoolChange{
		New: now, Cluster: &parent.Cluster, ActiveVersions: parent.Status.ActiveVersions, Subscription: rq.subscription,
	}
	if stored != nil {
		change.Old, change.Running = &stored.NodePool, stored.Status.Version
	}
	return s.Rules.NodePool(change)
}

func (nodePoolType) validateAgainstStore(*Server, context.Context, *request, *hub.NodePool, string) ([]apierror.Violation, error) {
	return nil, nil
}

func (nodePoolType) pin(*Server, *request, *hub.NodePool) {}

func (nodePoolType) validateChangeAgainstStore(*Server, context.Context, *request, *hub.NodePool, *hub.NodePool) ([]apierror.Violation, error) {
	return nil, nil
}

func (nodePoolType) keepStoredCasing(now, stored *hub.NodePool) {
	now.Location, now.Properties.Platform = stored.Location, stored.Properties.Platform
}

// reservations returns nothing: node pools reserve no names.
// allot returns nil: there is no quota.
func (nodePoolType) allot(*Server, context.Context, *request, *database.NodePoolDocument, int) error {
	return nil
}

func (nodePoolType) reservations(database.Key, *database.NodePoolDocument) map[database.Key]database.ReservationDocument {
	return nil
}

func (nodePoolType) reservationConflict(*database.NodePoolDocument, []database.ReservationDocument) error {
	return nil
}

// guardDeletion rejects the deletion of the last node pool of a cluster. A pool that is being deleted does not count as
// remaining. The batch writes one remaining pool unchanged, so that concurrent deletions of the last pools conflict with
// each other. The deletion of the cluster deletes its pools without this check.
func (nodePoolType) guardDeletion(s *Server, ctx context.Context, rq *request, parent *database.Item[database.ClusterDocument], batch *database.Batch) error {
	if parent == nil {
		return nil
	}
	var remaining *database.Item[database.NodePoolDocument]
	err := s.Database.NodePools().ForEach(ctx, rq.key().SubscriptionID, rq.clusterID()+"/nodePools/", func(pool *database.Item[database.NodePoolDocument]) error {
		if remaining == nil && pool.Value.ProvisioningState != hub.Deleting && !strings.EqualFold(pool.Key.ResourceID, rq.resourceID) {
			remaining = pool
		}
		return nil
	})
	if err != nil {
		return err
	}
	if remaining == nil {
		return apierror.New(apierror.LastNodePool, "The last node pool of a cluster cannot be deleted. Delete the cluster, which deletes its node pools, or create another node pool first.")
	}
	database.Replace(batch, remaining)
	return nil
}

func (nodePoolType) dispatch(ctx context.Context, to Dispatcher, document *database.NodePoolDocument, deleting bool, correlationID string) {
	to.NodePool(ctx, document, deleting, correlationID)
}
