// Package operations finds the operations that are under way and puts them into the inbox. It decides nothing.
package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Finder is the changes.Seeker of operations.
type Finder struct {
	db    *database.DB
	owns  func(partition.Group) bool
	queue *eventqueue.Queue
	log   *slog.Logger
}

// NewFinder makes a Finder.
func NewFinder(db *database.DB, owns func(partition.Group) bool, in *eventqueue.Queue, log *slog.Logger) *Finder {
	return &Finder{db: db, owns: owns, queue: in, log: log}
}

// HandleChange notes an operation that is under way.
func (f *Finder) HandleChange(ctx context.Context, change database.Change) {
	if change.Kind != database.OperationKind || change.Removed {
		return
	}
	operation, err := database.DecodeChange(f.db.Operations(), change)
	if err != nil {
		// One document that cannot be read must not hold up all the others.
		f.log.ErrorContext(ctx, "an operation cannot be read", "key", change.Key.ResourceID, "error", err)
		return
	}
	f.enqueue(operation)
}

func (f *Finder) enqueue(operation *database.Item[database.OperationDocument]) {
	if operation.Value.Status.Terminal() {
		return
	}
	f.queue.AddOperation(eventqueue.ResourceOf(operation.Value.ResourceID), operation.Value.OperationID, operation.Key)
}

// Resync notes every active operation. refresh also has Cluster Service asked how they stand.
func (f *Finder) Resync(ctx context.Context, refresh bool) error {
	if refresh {
		return f.each(ctx, f.queue.RequestRefresh)
	}
	return f.each(ctx, func(eventqueue.Resource) {})
}

// MarkStale notes every active operation, and that what is known of its resource may have been lost in the fleet.
func (f *Finder) MarkStale(ctx context.Context) error {
	return f.each(ctx, f.queue.MarkStale)
}

// each notes every active operation, and does something with its resource.
func (f *Finder) each(ctx context.Context, do func(eventqueue.Resource)) error {
	found := 0
	err := f.db.ActiveOperations(ctx, func(operation *database.Item[database.OperationDocument]) error {
		if f.owns(partition.Of(operation.Key.SubscriptionID)) {
			found++
			f.enqueue(operation)
			do(eventqueue.ResourceOf(operation.Value.ResourceID))
		}
		return nil
	})
	var unreadable *database.UnreadableError
	if errors.As(err, &unreadable) {
		// One document that cannot be read must not hold up all the others.
		f.log.ErrorContext(ctx, "operations cannot be read", "count", unreadable.Count, "error", unreadable.First)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("looking for operations that are under way, after %d: %w", found, err)
	}
	f.log.DebugContext(ctx, "looked for operations that are under way", "found", found)
	return nil
}
