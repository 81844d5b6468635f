package lifecycle

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/inbox"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// mostChildren is how many node pools, each with an operation, one transaction takes: it leaves room for the cluster,
// its operation and its reservations.
const mostChildren = (database.BatchLimit - 10) / 2

func clusterKind(c *Controller) *kind[database.ClusterDocument] {
	return &kind[database.ClusterDocument]{
		Controller: c,
		collection: c.db.Clusters(),
		view: func(d *database.ClusterDocument) view {
			return view{uid: d.UID, generation: d.Generation, state: &d.ProvisioningState, operation: &d.ActiveOperationID, fleet: &d.Fleet}
		},
		observe: func(d *database.ClusterDocument, report *clusterservice.Report) bool {
			changed := !reflect.DeepEqual(d.Status, *report.Cluster)
			d.Status = *report.Cluster
			return changed
		},
		apply: func(ctx context.Context, d *database.ClusterDocument) (clusterservice.Report, error) {
			answer, err := c.clusterService.ApplyCluster(ctx, d)
			return clusterservice.ClusterReport(answer), err
		},
		remove: func(ctx context.Context, d *database.ClusterDocument) (clusterservice.Report, error) {
			answer, err := c.clusterService.DeleteCluster(ctx, d)
			return clusterservice.ClusterReport(answer), err
		},
		get: func(ctx context.Context, uid string) (clusterservice.Report, error) {
			answer, err := c.clusterService.GetCluster(ctx, uid)
			return clusterservice.ClusterReport(answer), err
		},
		doom: c.doomNodePools,
		// Billing is in a container of its own, so no transaction spans both: it is written first, and written again
		// without effect should the cluster not be.
		usable: func(ctx context.Context, item *database.Item[database.ClusterDocument]) error {
			return c.db.BeginBilling(ctx, item.Key, &item.Value, time.Now().UTC())
		},
		purge: c.purgeCluster,
	}
}

// doomed is a cluster being deleted whose children have been told so: the incarnation, and how many there were. As none can
// be made any more, there is nothing to look for again where there were none.
type doomed struct {
	uid      string
	children int
}

// child is a node pool of a cluster with the operation that it waits for, if any.
type child struct {
	pool      *database.Item[database.NodePoolDocument]
	operation *database.Item[database.OperationDocument]
}

// children reads the cluster's node pools. All that stand under its ARM id are its own: a new cluster of the name is
// only made when nothing is left of the last.
func (c *Controller) children(ctx context.Context, cluster *database.Item[database.ClusterDocument]) ([]child, error) {
	var children []child
	prefix := strings.ToLower(cluster.Key.ResourceID) + "/nodepools/"
	err := c.db.NodePools().All(ctx, cluster.Key.SubscriptionID, prefix, func(pool *database.Item[database.NodePoolDocument]) error {
		operation, err := c.nodePools.activeOperation(ctx, pool.Key, nodePoolView(&pool.Value))
		children = append(children, child{pool, operation})
		return err
	})
	return children, err
}

// doomNodePools shows the node pools of a cluster that is being deleted as being deleted too, and ends their other
// operations. It is what the customer sees: Cluster Service deletes them with the cluster on its own.
func (c *Controller) doomNodePools(ctx context.Context, cluster *database.Item[database.ClusterDocument]) error {
	r := inbox.ResourceOf(cluster.Key.ResourceID)
	c.mu.Lock()
	done := c.doomed[r].uid == cluster.Value.UID
	c.mu.Unlock()
	if done {
		return nil
	}
	children, err := c.children(ctx, cluster)
	if err != nil {
		return fmt.Errorf("listing the node pools of a cluster being deleted: %w", err)
	}
	for _, child := range children {
		if child.pool.Value.ProvisioningState == hub.Deleting {
			continue
		}
		batch := c.db.NewBatch(cluster.Key.SubscriptionID)
		child.pool.Value.ProvisioningState = hub.Deleting
		child.pool.Value.ActiveOperationID = ""
		database.Replace(batch, child.pool)
		if child.operation != nil {
			child.operation.Value.End(hub.Canceled, &database.OperationError{Code: "Canceled", Message: "The cluster is being deleted."}, time.Now().UTC())
			database.Replace(batch, child.operation)
		}
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		if child.operation != nil {
			c.ended(ctx, inbox.ResourceOf(child.pool.Key.ResourceID), child.operation)
		}
	}
	c.mu.Lock()
	c.doomed[r] = doomed{cluster.Value.UID, len(children)}
	c.mu.Unlock()
	return nil
}

// purgeCluster removes the cluster, its reservations and its node pools. What fits into one transaction is one; else
// node pools go first, so that the cluster stands until nothing else does and a crash in between is made good by the
// next turn. Making a node pool writes its cluster, so none can come to be meanwhile: the last commit would fail.
func (c *Controller) purgeCluster(ctx context.Context, cluster *database.Item[database.ClusterDocument], operation *database.Item[database.OperationDocument]) error {
	c.mu.Lock()
	known := c.doomed[inbox.ResourceOf(cluster.Key.ResourceID)]
	c.mu.Unlock()
	var children []child
	if known.uid != cluster.Value.UID || known.children > 0 {
		var err error
		if children, err = c.children(ctx, cluster); err != nil {
			return fmt.Errorf("listing the node pools of a deleted cluster: %w", err)
		}
	}
	if err := c.db.EndBilling(ctx, cluster.Key, cluster.Value.UID, time.Now().UTC()); err != nil {
		return err
	}
	for len(children) > mostChildren {
		batch := c.db.NewBatch(cluster.Key.SubscriptionID)
		removeChildren(batch, children[:mostChildren])
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		c.endedChildren(ctx, children[:mostChildren])
		children = children[mostChildren:]
	}
	batch := c.db.NewBatch(cluster.Key.SubscriptionID)
	removeChildren(batch, children)
	for key, reservation := range database.ClusterReservations(cluster.Key, &cluster.Value) {
		held, err := c.db.Reservations().Find(ctx, key)
		if err != nil {
			return err
		}
		if held != nil && held.Removed == nil && held.Value.OwnerUID == reservation.OwnerUID {
			database.Remove(batch, held)
		}
	}
	if operation != nil {
		database.Replace(batch, operation)
	}
	database.Remove(batch, cluster)
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	c.endedChildren(ctx, children)
	c.mu.Lock()
	delete(c.doomed, inbox.ResourceOf(cluster.Key.ResourceID))
	c.mu.Unlock()
	return nil
}

func removeChildren(batch *database.Batch, children []child) {
	now := time.Now().UTC()
	for _, child := range children {
		if child.operation != nil {
			if child.operation.Value.Request == database.DeleteRequest {
				child.operation.Value.End(hub.Succeeded, nil, now)
			} else {
				child.operation.Value.End(hub.Canceled, &database.OperationError{Code: "Canceled", Message: "The cluster was deleted."}, now)
			}
			database.Replace(batch, child.operation)
		}
		database.Remove(batch, child.pool)
	}
}

func (c *Controller) endedChildren(ctx context.Context, children []child) {
	for _, child := range children {
		if child.operation != nil {
			c.ended(ctx, inbox.ResourceOf(child.pool.Key.ResourceID), child.operation)
		}
	}
}
