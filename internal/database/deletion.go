package database

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// Supersede adds to a batch the end of the operation that another one takes the place of, unless it has ended already or
// there is none (id is empty).
func (db *DB) Supersede(ctx context.Context, batch *Batch, id, reason string, now time.Time) error {
	if id == "" {
		return nil
	}
	item, err := db.operations.Find(ctx, OperationKey(batch.subscription, "-", id))
	if err != nil || item == nil || item.Removed != nil || item.Value.Status.Terminal() {
		return err
	}
	item.Value.End(hub.Canceled, &OperationError{Code: "Canceled", Message: reason}, now)
	Replace(batch, item)
	return nil
}

// BeginClusterDeletion commits the beginning of a cluster's deletion: the cluster as it was read becomes Deleting, the
// operation that it waited for is canceled, and the given one takes its place. Of two that begin at once one loses the
// race: there is one operation for each deletion.
func (db *DB) BeginClusterDeletion(ctx context.Context, item *Item[ClusterDocument], operation OperationDocument) error {
	batch := db.NewBatch(item.Key.SubscriptionID)
	if err := db.Supersede(ctx, batch, item.Value.ActiveOperationID, "The operation was superseded by the deletion of the resource.", operation.StartTime); err != nil {
		return err
	}
	item.Value.ProvisioningState = hub.Deleting
	item.Value.ActiveOperationID = operation.OperationID
	Replace(batch, item)
	Create(batch, db.operations, OperationKey(item.Key.SubscriptionID, operation.Location, operation.OperationID), operation)
	return batch.Commit(ctx)
}

// End makes the operation terminal.
func (o *OperationDocument) End(status hub.ProvisioningState, failure *OperationError, now time.Time) {
	o.Status, o.Error = status, failure
	o.LastTransitionTime, o.EndTime = now, &now
}

// DeletionNote is what is kept of a step of the deletion, to be changed; it is made where there is none.
func (o *OperationDocument) DeletionNote(kind string) *adminv1.DeletionNote {
	for i := range o.DeletionNotes {
		if o.DeletionNotes[i].Kind == kind {
			return &o.DeletionNotes[i]
		}
	}
	o.DeletionNotes = append(o.DeletionNotes, adminv1.DeletionNote{Kind: kind})
	return &o.DeletionNotes[len(o.DeletionNotes)-1]
}
