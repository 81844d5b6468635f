package database

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// Supersede adds the cancellation of an operation to a batch that replaces it. It adds nothing if id is empty or the
// operation is terminal.
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

// BeginClusterDeletion commits the start of a cluster's deletion: it sets the cluster to Deleting, cancels the active
// operation and creates the given one. If two deletions start at once, one fails with a WriteConflict, so that each
// deletion has one operation.
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

// DeletionNote returns the note of a deletion step for changing. It adds an empty note if there is none.
func (o *OperationDocument) DeletionNote(kind string) *adminv1.DeletionNote {
	for i := range o.DeletionNotes {
		if o.DeletionNotes[i].Kind == kind {
			return &o.DeletionNotes[i]
		}
	}
	o.DeletionNotes = append(o.DeletionNotes, adminv1.DeletionNote{Kind: kind})
	return &o.DeletionNotes[len(o.DeletionNotes)-1]
}
