package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// cascadeState is what a deletion of a cluster found beneath it when it told all of that: as long as its operation is under way nothing
// can be made there, so there is nothing to look for again where there was nothing. That ends with the operation: beneath a
// cluster whose deletion has failed node pools can be made again.
type cascadeState struct {
	operation string
	children  int
}

// child is what stands beneath a cluster, with the operation that it waits for, if any.
type child struct {
	key database.Key
	// operation is nil when none is under way.
	operation *database.Item[database.OperationDocument]
	// markDeleting adds what shows that the child goes with its cluster; nil when that shows already.
	markDeleting func(batch *database.Batch)
	// remove adds its removal, of documents in all, besides the operation's end.
	remove    func(batch *database.Batch)
	documents int
}

// children reads what stands beneath a cluster. All that does is its own: a new cluster of the name is only made when
// nothing is left of the last.
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
			// Of a release that made what this one does not know: it must not be left behind in silence.
			return fmt.Errorf("%s is of the unknown kind %q", change.Key.ResourceID, change.Kind)
		}
		one, err := read(ctx, change)
		children = append(children, one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing what is beneath a cluster being deleted: %w", err)
	}
	return children, nil
}

// child is a resource of the kind as a child of its cluster.
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

// reserved reads the reservations that a resource holds.
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

// markChildrenDeleting shows what stands beneath a cluster that is being deleted as being deleted too, and ends the operations on
// it. It is what the customer sees: Cluster Service deletes them with the cluster on its own.
func (c *Controller) markChildrenDeleting(ctx context.Context, cluster *database.Item[database.ClusterDocument]) error {
	r, operation := eventqueue.ResourceOf(cluster.Key.ResourceID), cluster.Value.ActiveOperationID
	if _, told := c.childrenMarked(r, operation); told {
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

// childrenMarked says whether the deletion that an operation is about has told all that is beneath its cluster, and how many that were. An
// operation that has ended is empty, and has told nothing.
func (c *Controller) childrenMarked(r eventqueue.Resource, operation string) (children int, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.cascades[r]
	return found.children, operation != "" && found.operation == operation
}

// removeChildren removes what stands beneath a cluster that is gone. What does not fit into the cluster's own batch goes
// before, in batches of its own; the rest is added to it. The operations end with what they were on; ended says so once
// the batch is committed.
func (c *Controller) removeChildren(ctx context.Context, batch *database.Batch, children []child) (ended func(), err error) {
	var last []child
	for room := database.MaxBatchDocuments - clusterDocuments; len(children) > 0; children = children[1:] {
		one := children[0]
		if needed := one.documents + 1; needed > room {
			// The batch is full: it goes ahead, and the next one is empty.
			ahead := c.db.NewBatch(one.key.SubscriptionID)
			addRemovals(ahead, last)
			if err := ahead.Commit(ctx); err != nil {
				return nil, err
			}
			for _, child := range last {
				c.childOperationEnded(ctx, child)
			}
			last, room = nil, database.MaxBatchDocuments-clusterDocuments
		}
		last, room = append(last, one), room-one.documents-1
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

// childOperationEnded notes the end of the operation on a child, if there was one.
func (c *Controller) childOperationEnded(ctx context.Context, one child) {
	if one.operation != nil {
		c.operationEnded(ctx, eventqueue.ResourceOf(one.key.ResourceID), one.operation)
	}
}
