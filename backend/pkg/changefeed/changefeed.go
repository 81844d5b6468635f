// Package changes tells those who look after documents — the seekers — what there is to look after in the groups of
// subscriptions that this replica has: of every write as the change feed shows it, and of everything there is, by having
// them look through the store, when this replica starts or gets a group, and from time to time as a safety net. It decides
// nothing, and knows no kind of document from another.
package changefeed

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Back-off of a seeker whose look through the store failed.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// overlap is how far before the start the feed is read from: more than clocks differ.
const overlap = time.Minute

// Handler looks after documents of some kinds.
type Handler interface {
	// HandleChange hears of the newest state of a document of an owned group; it may hear of the same one again. It must not
	// block: it notes what is to be done.
	HandleChange(ctx context.Context, change database.Change)
	// Resync finds by listing what Changed may not have heard of, in the groups that are owned. refresh is set when it is
	// the safety net that asks.
	Resync(ctx context.Context, refresh bool) error
}

// Dispatcher tells seekers.
type Dispatcher struct {
	db       *database.DB
	owns     func(partition.Group) bool
	feed     database.FeedOptions
	interval time.Duration
	log      *slog.Logger
	handlers []Handler

	acquired chan struct{}
}

// New makes a Follower that has the store looked through every resync; 0 means 10 minutes.
func New(db *database.DB, owns func(partition.Group) bool, feed database.FeedOptions, resync time.Duration, log *slog.Logger, seekers ...Handler) *Dispatcher {
	if resync == 0 {
		resync = 10 * time.Minute
	}
	return &Dispatcher{db: db, owns: owns, feed: feed, interval: resync, log: log, handlers: seekers, acquired: make(chan struct{}, 1)}
}

// GroupAcquired has the seekers look for what was left undone in a group that this replica has got. The feed must be running by
// then, or begin at an earlier time, so that nothing falls between.
func (f *Dispatcher) GroupAcquired(partition.Group) {
	select {
	case f.acquired <- struct{}{}:
	default:
	}
}

// Follow follows the change feed, from a little before started, until ctx ends.
func (f *Dispatcher) Follow(ctx context.Context, started time.Time) {
	// It returns when ctx ends, with nothing to say but that.
	_ = f.db.Tail(ctx, started.Add(-overlap), f.feed, func(ctx context.Context, changes []database.Change) error {
		for _, change := range changes {
			if !f.owns(partition.Of(change.Key.SubscriptionID)) {
				continue
			}
			for _, seeker := range f.handlers {
				seeker.HandleChange(ctx, change)
			}
		}
		return nil
	})
}

// RunResync has the store looked through whenever a group was got, and every resync, until ctx ends. A seeker whose look failed is asked
// again after a back-off; the others are not.
func (f *Dispatcher) RunResync(ctx context.Context) {
	// due are the seekers to be asked, and whether the safety net asks.
	due := map[Handler]bool{}
	backoff, resync := minBackoff, time.Now().Add(f.jitteredInterval())
	for {
		pause := time.Until(resync)
		if len(due) > 0 {
			pause = min(pause, backoff/2+rand.N(backoff))
			backoff = min(2*backoff, maxBackoff)
		} else {
			backoff = minBackoff
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-f.acquired:
			timer.Stop()
			for _, seeker := range f.handlers {
				if _, again := due[seeker]; !again {
					due[seeker] = false
				}
			}
		case <-timer.C:
		}
		if !time.Now().Before(resync) {
			for _, seeker := range f.handlers {
				due[seeker] = true
			}
			resync = time.Now().Add(f.jitteredInterval())
		}
		f.resyncDue(ctx, due)
	}
}

// resyncDue asks those who are due, and leaves those who are to be asked again.
func (f *Dispatcher) resyncDue(ctx context.Context, due map[Handler]bool) {
	for _, seeker := range f.handlers {
		refresh, asked := due[seeker]
		if !asked {
			continue
		}
		err := seeker.Resync(ctx, refresh)
		var unreadable *database.UnreadableError
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			delete(due, seeker)
		case errors.As(err, &unreadable):
			// It would be no other the next time, and all else was found.
			f.log.ErrorContext(ctx, "looking through the store", "error", err)
			delete(due, seeker)
		default:
			f.log.WarnContext(ctx, "looking through the store; will do so again", "error", err)
		}
	}
}

// jitteredInterval keeps the replicas from looking in step.
func (f *Dispatcher) jitteredInterval() time.Duration { return f.interval/2 + rand.N(f.interval) }
