package adminoperation

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// scale changes the size of a node pool as a customer's update would: a newer generation of its document, and an operation
// of ARM's that brings it about, whose id is the SRE's operation's. The truth of what is wanted stays in one place.
func (e *Executor) scale(ctx context.Context, o *database.AdminOperationDocument, p adminv1.ScaleRequest) (any, error) {
	key, err := database.ResourceKey(o.Target.ResourceID)
	if err != nil {
		return nil, invalidParameters(err)
	}
	result := adminv1.ScaleResult{ARMOperationID: o.OperationID}
	err = database.Retry(ctx, func(ctx context.Context) error {
		item, err := e.db.NodePools().Find(ctx, key)
		switch {
		case err != nil:
			return err
		case item == nil || item.Removed != nil || item.Value.UID != o.Target.ID:
			return apierror.New(apierror.NotFound, "The node pool is gone.")
		}
		d := &item.Value
		begun := database.OperationKey(key.SubscriptionID, d.NodePool.Location, o.OperationID)
		known, err := e.db.Operations().Find(ctx, begun)
		if err != nil {
			return err
		}
		if known != nil { // by an attempt before this one
			result.Generation = known.Value.Generation
			return nil
		}
		if !d.ProvisioningState.Terminal() {
			return apierror.New(apierror.Conflict, "The node pool is %s: it cannot be scaled before that has ended.", d.ProvisioningState)
		}
		d.NodePool.Properties.Replicas, d.NodePool.Properties.AutoScaling = 0, p.AutoScaling
		if p.Replicas != nil {
			d.NodePool.Properties.Replicas = *p.Replicas
		}
		d.Generation++
		d.ProvisioningState, d.ActiveOperationID = hub.Updating, o.OperationID
		result.Generation = d.Generation
		now := time.Now().UTC()
		batch := e.db.NewBatch(key.SubscriptionID)
		database.Replace(batch, item)
		database.Create(batch, e.db.Operations(), begun, database.OperationDocument{
			OperationID: o.OperationID, Request: database.UpdateRequest, ResourceID: d.NodePool.ID, ResourceType: d.NodePool.Type, UID: d.UID,
			Generation: d.Generation, Location: d.NodePool.Location, Status: hub.Updating, StartTime: now, LastTransitionTime: now,
			Requester: nameOf(o), CorrelationID: o.OperationID,
		})
		return batch.Commit(ctx)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// retryARMOperation writes an operation of ARM's as it is: whoever follows the change feed takes it up anew.
func (e *Executor) retryARMOperation(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	err := e.updateARMOperation(ctx, o, func(_ context.Context, batch *database.Batch, item *database.Item[database.OperationDocument]) error {
		if item.Value.Status.Terminal() {
			return apierror.New(apierror.Conflict, "The operation has ended as %s.", item.Value.Status)
		}
		database.Replace(batch, item)
		return nil
	})
	return nil, err
}

// cancelARMOperation ends a create or an update of ARM's, and what its resource waits for with it. What Cluster Service has taken of
// it stays: the next update goes over it.
func (e *Executor) cancelARMOperation(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	err := e.updateARMOperation(ctx, o, func(ctx context.Context, batch *database.Batch, item *database.Item[database.OperationDocument]) error {
		op := &item.Value
		switch {
		case op.Status == hub.Canceled:
			return nil // by an attempt before this one, or by somebody else: it is what was asked for
		case op.Status.Terminal():
			return apierror.New(apierror.Conflict, "The operation has ended as %s.", op.Status)
		case op.Request != database.CreateRequest && op.Request != database.UpdateRequest:
			return apierror.New(apierror.Conflict, "An operation that is a %s cannot be canceled.", op.Request)
		}
		if err := e.clearActiveOperation(ctx, batch, op); err != nil {
			return err
		}
		op.End(hub.Canceled, &database.OperationError{Code: "Canceled", Message: "The operation was canceled by the service's engineers."}, time.Now().UTC())
		database.Replace(batch, item)
		return nil
	})
	return nil, err
}

func (e *Executor) updateARMOperation(ctx context.Context, o *database.AdminOperationDocument, do func(ctx context.Context, batch *database.Batch, item *database.Item[database.OperationDocument]) error) error {
	return database.Retry(ctx, func(ctx context.Context) error {
		item, err := e.db.OperationByID(ctx, o.Target.ID)
		if err != nil {
			return err
		}
		if item == nil {
			return apierror.New(apierror.NotFound, "The operation is gone.")
		}
		batch := e.db.NewBatch(item.Key.SubscriptionID)
		if err := do(ctx, batch, item); err != nil {
			return err
		}
		return batch.Commit(ctx)
	})
}

// clearActiveOperation adds to a batch that the resource of an operation no longer waits for it.
func (e *Executor) clearActiveOperation(ctx context.Context, batch *database.Batch, op *database.OperationDocument) error {
	key, err := database.ResourceKey(op.ResourceID)
	if err != nil {
		return invalidParameters(err)
	}
	switch op.ResourceType {
	case hub.ClusterResourceType:
		return clearActiveOperationOf(ctx, batch, e.db.Clusters(), key, op, func(d *database.ClusterDocument) (*string, *hub.ProvisioningState) {
			return &d.ActiveOperationID, &d.ProvisioningState
		})
	case hub.NodePoolResourceType:
		return clearActiveOperationOf(ctx, batch, e.db.NodePools(), key, op, func(d *database.NodePoolDocument) (*string, *hub.ProvisioningState) {
			return &d.ActiveOperationID, &d.ProvisioningState
		})
	case hub.ExternalAuthResourceType:
		return clearActiveOperationOf(ctx, batch, e.db.ExternalAuths(), key, op, func(d *database.ExternalAuthDocument) (*string, *hub.ProvisioningState) {
			return &d.ActiveOperationID, &d.ProvisioningState
		})
	}
	return apierror.New(apierror.Conflict, "An operation on a %s cannot be canceled.", op.ResourceType)
}

// clearActiveOperationOf is release for one kind; in says where a document keeps what it waits for, and its state.
func clearActiveOperationOf[D any](ctx context.Context, batch *database.Batch, collection *database.Collection[D], key database.Key, op *database.OperationDocument,
	in func(*D) (active *string, state *hub.ProvisioningState)) error {
	item, err := collection.Find(ctx, key)
	if err != nil || item == nil || item.Removed != nil {
		return err
	}
	active, state := in(&item.Value)
	if *active != op.OperationID {
		return nil
	}
	*active, *state = "", hub.Canceled
	database.Replace(batch, item)
	return nil
}
