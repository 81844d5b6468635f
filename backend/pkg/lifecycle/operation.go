package lifecycle

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// endSuperseded ends the operations that another operation of the resource has replaced.
func (k *kind[D]) endSuperseded(ctx context.Context, r eventqueue.Resource, event eventqueue.Event, item *database.Item[D], v view) error {
	for id, key := range event.Operations {
		if id == *v.operation {
			continue
		}
		// The resource is written unchanged, so that the commit fails if the resource was read before a change.
		guard := func(batch *database.Batch) { database.Replace(batch, item) }
		if err := k.endOperation(ctx, r, id, key, guard); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) endOperation(ctx context.Context, r eventqueue.Resource, id string, key database.Key, guard func(*database.Batch)) error {
	operation, err := c.db.Operations().Find(ctx, key)
	if err != nil {
		return err
	}
	if operation == nil || operation.Removed != nil || operation.Value.Status.Terminal() {
		c.queue.RemoveOperation(r, id)
		return nil
	}
	now := time.Now().UTC()
	if guard == nil && now.Sub(operation.Value.StartTime) < missingResourceGrace && operation.Value.Request != database.DeleteRequest {
		c.queue.AddAfter(r, missingResourceGrace)
		return nil
	}
	switch {
	case guard == nil && operation.Value.Request == database.DeleteRequest:
		operation.Value.End(hub.Succeeded, nil, now)
	default:
		operation.Value.End(hub.Canceled, &database.OperationError{Code: "Canceled", Message: "The operation was superseded by another operation."}, now)
	}
	batch := c.db.NewBatch(key.SubscriptionID)
	database.Replace(batch, operation)
	if guard != nil {
		guard(batch)
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	c.operationEnded(ctx, r, operation)
	return nil
}

// activeOperation reads the active operation of the resource, or returns nil.
func (k *kind[D]) activeOperation(ctx context.Context, key database.Key, v view) (*database.Item[database.OperationDocument], error) {
	return k.runningOperation(ctx, key.SubscriptionID, *v.operation)
}

// runningOperation reads an operation by its ID. It returns nil if there is none or it has ended.
func (c *Controller) runningOperation(ctx context.Context, subscriptionID, id string) (*database.Item[database.OperationDocument], error) {
	if id == "" {
		return nil, nil
	}
	operation, err := c.db.Operations().Find(ctx, database.OperationKey(subscriptionID, "-", id))
	if err != nil {
		return nil, err
	}
	if operation == nil || operation.Removed != nil || operation.Value.Status.Terminal() {
		return nil, nil
	}
	return operation, nil
}
