package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// cascadeState caches the number of children after all children of a cluster are marked for deletion. No child can be
// created while the deletion runs, so that none need to be read again if there were none. The cache is valid for the
// operation only: after a failed deletion, node pools can be created again.
type cascadeState struct {
	operation string
	children  int
}

// child is a child of a cluster, with its active operation.
type child struct {
	key database.Key
	// operation is nil if none is running.
	operation *database.Item[database.OperationDocument]
	// markDeleting adds the write that marks the child for deletion; nil if it is already marked.
	markDeleting func(batch *database.Batch)
	// remove adds the removal of the child, which takes the given number of documents besides its operation.
	remove    func(batch *database.Batch)
	documents int
}

// children reads the children of a cluster. All belong to this incarnation: a new cluster with the same name is created
// only after everything of the previous one is removed.
func (c *Controller) children(ctx context.Context, cluster *database.Item[database.ClusterDocument]) ([]child, error) {
	var children []child
	err := c.db.Children(ctx, cluster.Key, func(change database.Change) error {
		var read func(ctx context.Context, change database.Change) (child, error)
		switch change.Kind {
		case database.NodePoolKind:
			read = c.nodePools.child
		case database.ExternalAuthKind:
			read = c.externalAuths.child
		case database.CredentialKind:
			read = c.credentialChild
		default:
			// A newer release has created it. It must not be left behind silently.
			return fmt.Errorf("reading the child %s: unsupported kind %q", change.Key.ResourceID, change.Kind)
		}
		one, err := read(ctx, change)
		children = append(children, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing the children of a cluster: %w", err)
	}
	return children, nil
}

// child returns a resource of the kind as a child of its cluster.
func (k *kind[D]) child(ctx context.Context, change database.Change) (child, error) {
	item, err := database.DecodeChange(k.collection, change)
	if err != nil {
		return child{}, err
	}
	v := k.view(&item.Value)
	operation, err := k.activeOperation(ctx, item.Key, v)
	if err != nil {
		return child{}, err
	}
	reserved, err := k.reserved(ctx, item)
	if err != nil {
		return child{}, err
	}
	one := child{key: item.Key, operation: operation, documents: 1 + len(reserved)}
	if *v.state != hub.Deleting {
		one.markDeleting = func(batch *database.Batch) {
			*v.state, *v.operation = hub.Deleting, ""
			database.Replace(batch, item)
		}
	}
	one.remove = func(batch *database.Batch) {
		for _, reservation := range reserved {
			database.Remove(batch, reservation)
		}
		database.Remove(batch, item)
	}
	return one, nil
}

// reserved reads the reservations that a resource owns.
func (k *kind[D]) reserved(ctx context.Context, item *database.Item[D]) ([]*database.Item[database.ReservationDocument], error) {
	if k.reservations == nil {
		return nil, nil
	}
	var reserved []*database.Item[database.ReservationDocument]
	for key, reservation := range k.reservations(item.Key, &item.Value) {
		held, err := k.db.Reservations().Find(ctx, key)
		if err != nil {
			return nil, err
		}
		if held != nil && held.Removed == nil && held.Value.OwnerUID == reservation.OwnerUID {
			reserved = append(reserved, held)
		}
	}
	return reserved, nil
}

// markChildrenDeleting marks the children of a cluster for deletion and cancels their operations. This is for the
// customer to see: Cluster Service deletes the children with the cluster by itself.
func (c *Controller) markChildrenDeleting(ctx context.Context, cluster *database.Item[database.ClusterDocument]) error {
	r, operation := eventqueue.ResourceOf(cluster.Key.ResourceID), cluster.Value.ActiveOperationID
	if _, marked := c.childrenMarked(r, operation); marked {
		return nil
	}
	children, err := c.children(ctx, cluster)
	if err != nil {
		return err
	}
	for _, child := range children {
		if child.markDeleting == nil {
			continue
		}
		batch := c.db.NewBatch(cluster.Key.SubscriptionID)
		child.markDeleting(batch)
		if child.operation != nil {
			child.operation.Value.End(hub.Canceled, &database.OperationError{Code: "Canceled", Message: "The cluster is being deleted."}, time.Now().UTC())
			database.Replace(batch, child.operation)
		}
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		c.childOperationEnded(ctx, child)
	}
	if err := c.endRevocation(ctx, cluster); err != nil {
		return err
	}
	c.mu.Lock()
	c.cascades[r] = cascadeState{operation, len(children)}
	c.mu.Unlock()
	return nil
}

// childrenMarked reports whether all children of a cluster are marked for deletion by an operation, and how many
// children there are. After the operation has ended, operation is empty and the result is false.
func (c *Controller) childrenMarked(r eventqueue.Resource, operation string) (children int, marked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.cascades[r]
	return found.children, operation != "" && found.operation == operation
}

// removeChildren removes the children of a cluster that is gone. Children that fit are added to the cluster's batch;
// the others are removed before, in batches of their own. Their operations end with them. ended must be called after
// the commit.
func (c *Controller) removeChildren(ctx context.Context, batch *database.Batch, children []child) (ended func(), err error) {
	var last []child
	for available := database.MaxBatchDocuments - clusterDocuments; len(children) > 0; children = children[1:] {
		one := children[0]
		if needed := one.documents + 1; needed > available {
			// The batch is full: commit it and start another one.
			earlier := c.db.NewBatch(one.key.SubscriptionID)
			addRemovals(earlier, last)
			if err := earlier.Commit(ctx); err != nil {
				return nil, err
			}
			for _, child := range last {
				c.childOperationEnded(ctx, child)
			}
			last, available = nil, database.MaxBatchDocuments-clusterDocuments
		}
		last, available = append(last, one), available-one.documents-1
	}
	addRemovals(batch, last)
	return func() {
		for _, child := range last {
			c.childOperationEnded(ctx, child)
		}
	}, nil
}

func addRemovals(batch *database.Batch, children []child) {
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
		child.remove(batch)
	}
}

// childOperationEnded records the end of a child's operation, if it had one.
func (c *Controller) childOperationEnded(ctx context.Context, one child) {
	if one.operation != nil {
		c.operationEnded(ctx, eventqueue.ResourceOf(one.key.ResourceID), one.operation)
	}
}
