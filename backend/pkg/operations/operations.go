// Package operations finds the operations that are under way: it follows the change feed, looks through the store when
// this replica gets a group, and does so again from time to time as a safety net. It puts them into the inbox and decides
// nothing.
package operations

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/inbox"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// overlap is how far before the start the feed is read from: more than clocks differ.
const overlap = time.Minute

// Finder finds operations of the groups that this replica has.
type Finder struct {
	db     *database.DB
	owns   func(partition.Group) bool
	inbox  *inbox.Inbox
	feed   database.FeedOptions
	resync time.Duration
	log    *slog.Logger

	look chan struct{}
}

// NewFinder makes a Finder that looks through the store every resync; 0 means 10 minutes.
func NewFinder(db *database.DB, owns func(partition.Group) bool, in *inbox.Inbox, feed database.FeedOptions, resync time.Duration, log *slog.Logger) *Finder {
	if resync == 0 {
		resync = 10 * time.Minute
	}
	return &Finder{db: db, owns: owns, inbox: in, feed: feed, resync: resync, log: log, look: make(chan struct{}, 1)}
}

// Gained looks for what was left undone in a group that this replica has got. The feed must be running by then, or begin
// at an earlier time, so that nothing falls between.
func (f *Finder) Gained(partition.Group) {
	select {
	case f.look <- struct{}{}:
	default:
	}
}

// Follow follows the change feed, from a little before started, until ctx ends.
func (f *Finder) Follow(ctx context.Context, started time.Time) {
	// It returns when ctx ends, with nothing to say but that.
	_ = f.db.Tail(ctx, started.Add(-overlap), f.feed, func(_ context.Context, changes []database.Change) error {
		for _, change := range changes {
			if change.Kind != database.OperationKind || change.Removed || !f.owns(partition.Of(change.Key.SubscriptionID)) {
				continue
			}
			operation, err := database.ItemOf(f.db.Operations(), change)
			if err != nil {
				// One document that cannot be read must not hold up all the others.
				f.log.ErrorContext(ctx, "an operation cannot be read", "key", change.Key.ResourceID, "error", err)
				continue
			}
			f.note(operation)
		}
		return nil
	})
}

func (f *Finder) note(operation *database.Item[database.OperationDocument]) {
	if operation.Value.Status.Terminal() {
		return
	}
	f.inbox.Operation(inbox.ResourceOf(operation.Value.ResourceID), operation.Value.OperationID, operation.Key)
}

// Look looks through the store whenever a group was got, and every resync, until ctx ends.
func (f *Finder) Look(ctx context.Context) {
	pause := f.resync/2 + rand.N(f.resync)
	for {
		timer := time.NewTimer(pause)
		refresh := false
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-f.look:
			timer.Stop()
		case <-timer.C:
			refresh = true
		}
		pause = f.resync/2 + rand.N(f.resync)
		if err := f.lookThrough(ctx, refresh); err != nil && ctx.Err() == nil {
			f.log.WarnContext(ctx, "looking for operations that are under way", "error", err)
			pause = time.Second
		}
	}
}

// lookThrough puts every active operation of the owned groups into the inbox. refresh also has Cluster Service asked
// how they stand.
func (f *Finder) lookThrough(ctx context.Context, refresh bool) error {
	found := 0
	err := f.db.ActiveOperations(ctx, func(operation *database.Item[database.OperationDocument]) error {
		if !f.owns(partition.Of(operation.Key.SubscriptionID)) {
			return nil
		}
		found++
		f.note(operation)
		if refresh {
			f.inbox.Refresh(inbox.ResourceOf(operation.Value.ResourceID))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("after %d operations: %w", found, err)
	}
	f.log.DebugContext(ctx, "looked for operations that are under way", "found", found)
	return nil
}
