package adminoperation

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// scale changes the size of a node pool like a customer's update: it writes a new generation of the document and an ARM
// operation, whose ID is the admin operation's. The desired state stays in one place.
func (e *Executor) scale(ctx context.Context, o *database.AdminOperationDocument, p adminv1.ScaleRequest) (any, error) {
	key, err := database.ResourceKey(o.Target.ResourceID)
	if err != nil {
		return nil, adminaction.InvalidParameters(err)
	}
	result := adminv1.ScaleResult{ARMOperationID: o.OperationID}
	err = database.Retry(ctx, func(ctx context.Context) error {
		item, err := e.db.NodePools().Find(ctx, key)
		switch {
		case err != nil:
			return err
		case item == nil || item.Removed != nil || item.Value.UID != o.Target.ID:
			return apierror.New(apierror.NotFound, "The node pool does not exist.")
		}
		d := &item.Value
		begun := database.OperationKey(key.SubscriptionID, d.NodePool.Location, o.OperationID)
		known, err := e.db.Operations().Find(ctx, begun)
		if err != nil {
			return err
		}
		if known != nil { // an earlier attempt has written the operation
			result.Generation = known.Value.Generation
			return nil
		}
		if !d.ProvisioningState.Terminal() {
			return apierror.New(apierror.Conflict, "The node pool is %s. It can be scaled after that operation has ended.", d.ProvisioningState)
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
			Requester: adminaction.ActorName(o), CorrelationID: o.OperationID,
		})
		return batch.Commit(ctx)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// retryARMOperation rewrites an ARM operation unchanged, so that the change feed brings it to its handlers again.
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

// cancelARMOperation ends a create or an update and clears it from its resource. Cluster Service keeps what it has
// accepted; the next update replaces it.
func (e *Executor) cancelARMOperation(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	err := e.updateARMOperation(ctx, o, func(ctx context.Context, batch *database.Batch, item *database.Item[database.OperationDocument]) error {
		op := &item.Value
		switch {
		case op.Status == hub.Canceled:
			return nil // an earlier attempt or another actor has canceled the operation
		case op.Status.Terminal():
			return apierror.New(apierror.Conflict, "The operation has ended as %s.", op.Status)
		case op.Request != database.CreateRequest && op.Request != database.UpdateRequest:
			return apierror.New(apierror.Conflict, "A %s operation cannot be canceled.", op.Request)
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
			return apierror.New(apierror.NotFound, "The operation does not exist.")
		}
		batch := e.db.NewBatch(item.Key.SubscriptionID)
		if err := do(ctx, batch, item); err != nil {
			return err
		}
		return batch.Commit(ctx)
	})
}

// clearActiveOperation adds to a batch that the operation's resource no longer has an active operation.
func (e *Executor) clearActiveOperation(ctx context.Context, batch *database.Batch, op *database.OperationDocument) error {
	key, err := database.ResourceKey(op.ResourceID)
	if err != nil {
		return adminaction.InvalidParameters(err)
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

// clearActiveOperationOf is clearActiveOperation for one kind. fields returns where a document stores its active
// operation and its state.
func clearActiveOperationOf[D any](ctx context.Context, batch *database.Batch, collection *database.Collection[D], key database.Key, op *database.OperationDocument,
	fields func(*D) (active *string, state *hub.ProvisioningState)) error {
	item, err := collection.Find(ctx, key)
	if err != nil || item == nil || item.Removed != nil {
		return err
	}
	active, state := fields(&item.Value)
	if *active != op.OperationID {
		return nil
	}
	*active, *state = "", hub.Canceled
	database.Replace(batch, item)
	return nil
}
