package lifecycle

import (
	"context"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// clusterDocuments is how many documents of a batch are reserved for the cluster itself: the cluster, its operation and
// its reservations, with some spare.
const clusterDocuments = 10

func clusterKind(c *Controller) *kind[database.ClusterDocument] {
	return &kind[database.ClusterDocument]{
		Controller: c,
		collection: c.db.Clusters(),
		view: func(d *database.ClusterDocument) view {
			return view{uid: d.UID, generation: d.Generation, generationField: &d.Generation, state: &d.ProvisioningState, operation: &d.ActiveOperationID, fleet: &d.Fleet, limits: decision.LimitsFromExperiments(d.Cluster.Experiments)}
		},
		observe: func(d *database.ClusterDocument, report *clusterservice.Report) bool {
			changed := !reflect.DeepEqual(d.Status, *report.Cluster)
			d.Status = *report.Cluster
			return changed
		},
		apply:  c.clusterService.ApplyCluster,
		remove: c.clusterService.DeleteCluster,
		get:    c.clusterService.GetCluster,
		spec: func(d *database.ClusterDocument) proto.Message {
			request, _ := clusterservice.ClusterRequest(d) // a document without a translation equals nothing that Cluster Service has
			return request.GetSpec()
		},
		reservations:         database.ClusterReservations,
		markChildrenDeleting: c.markChildrenDeleting,
		// Billing is in another container, which a transaction cannot include. It is written first; a repeated write
		// has no effect.
		onSucceeded: func(ctx context.Context, item *database.Item[database.ClusterDocument]) error {
			return c.db.BeginBilling(ctx, item.Key, &item.Value, time.Now().UTC())
		},
		recovery: func(ctx context.Context, d *database.ClusterDocument, report *clusterservice.Report) (*database.FleetRecovery, error) {
			if report.RecoveryFingerprint == "" || d.Fleet.Recovery != nil && d.Fleet.Recovery.Fingerprint == report.RecoveryFingerprint {
				return d.Fleet.Recovery, nil
			}
			fresh, err := c.clusterService.Recovery(ctx, d.UID, report.RecoveryFingerprint)
			if fresh == nil {
				fresh = d.Fleet.Recovery
			}
			return fresh, err
		},
		removeDependents: c.removeWithCluster,
	}
}

// removeWithCluster removes the dependents of a cluster. What fits is added to the cluster's transaction; the rest is
// removed before. The cluster is removed last, so that a repeated execution continues after a crash. Creating a child
// writes the cluster, so a child that is created meanwhile makes the last commit fail.
func (c *Controller) removeWithCluster(ctx context.Context, batch *database.Batch, cluster *database.Item[database.ClusterDocument]) (ended func(), err error) {
	var children []child
	if count, marked := c.childrenMarked(eventqueue.ResourceOf(cluster.Key.ResourceID), cluster.Value.ActiveOperationID); !marked || count > 0 {
		if children, err = c.children(ctx, cluster); err != nil {
			return nil, withStep(deletion.StepChildrenRemoved, err)
		}
	}
	if err := c.db.EndBilling(ctx, cluster.Key, &cluster.Value, time.Now().UTC()); err != nil {
		return nil, withStep(deletion.StepBillingEnded, err)
	}
	if err := c.endRevocation(ctx, cluster); err != nil {
		return nil, withStep(deletion.StepChildrenRemoved, err)
	}
	if ended, err = c.removeChildren(ctx, batch, children); err != nil {
		return nil, withStep(deletion.StepChildrenRemoved, err)
	}
	// Nothing of the cluster connects any more. The links are in another container, which a transaction cannot include.
	if err := c.db.EndEgressLinks(ctx, cluster.Value.UID, cluster.Value.ActiveOperationID, time.Now().UTC()); err != nil {
		return nil, withStep(deletion.StepDocumentsRemoved, err)
	}
	return ended, nil
}
