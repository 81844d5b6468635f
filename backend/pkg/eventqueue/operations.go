package eventqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// OperationFinder finds operations. It is a controller.Handler.
type OperationFinder struct {
	db    *database.DB
	owns  func(controller.Group) bool
	queue *Queue
	log   *slog.Logger
}

// NewOperationFinder returns an OperationFinder.
func NewOperationFinder(db *database.DB, owns func(controller.Group) bool, queue *Queue, log *slog.Logger) *OperationFinder {
	return &OperationFinder{db: db, owns: owns, queue: queue, log: log}
}

// HandleChange adds a running operation to the queue.
func (f *OperationFinder) HandleChange(ctx context.Context, change database.Change) {
	if change.Kind != database.OperationKind || change.Removed {
		return
	}
	operation, err := database.DecodeChange(f.db.Operations(), change)
	if err != nil {
		// A document that cannot be decoded must not hold up the others.
		f.log.ErrorContext(ctx, "skipping an operation that cannot be decoded", logkey.Key, change.Key.ResourceID, logkey.Error, err)
		return
	}
	f.enqueue(operation)
}

func (f *OperationFinder) enqueue(operation *database.Item[database.OperationDocument]) {
	if operation.Value.Status.Terminal() {
		return
	}
	f.queue.AddOperation(operation)
}

// Resync adds every active operation to the queue. With refresh it also requests their reports.
func (f *OperationFinder) Resync(ctx context.Context, refresh bool) error {
	if refresh {
		return f.each(ctx, f.queue.RequestRefresh)
	}
	return f.each(ctx, func(Resource) {})
}

// MarkStale adds every active operation to the queue and marks its resource as stale.
func (f *OperationFinder) MarkStale(ctx context.Context) error {
	return f.each(ctx, f.queue.MarkStale)
}

// each adds every active operation to the queue and calls do with its resource.
func (f *OperationFinder) each(ctx context.Context, do func(Resource)) error {
	found := 0
	err := f.db.ActiveOperations(ctx, func(operation *database.Item[database.OperationDocument]) error {
		if f.owns(controller.GroupOf(operation.Key.SubscriptionID)) {
			found++
			f.enqueue(operation)
			do(ResourceOf(operation.Value.ResourceID))
		}
		return nil
	})
	var unreadable *database.UnreadableError
	if errors.As(err, &unreadable) {
		// A document that cannot be decoded must not hold up the others.
		f.log.ErrorContext(ctx, "skipped operations that cannot be decoded", logkey.Count, unreadable.Count, logkey.Error, unreadable.First)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("listing the active operations, after %d: %w", found, err)
	}
	f.log.DebugContext(ctx, "listed the active operations", logkey.Count, found)
	return nil
}
