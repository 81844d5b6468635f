package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The pauses after a failed resync of a handler.
const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 15 * time.Second
)

// overlap is how long before the start of the process the feed is read from. It is more than clocks differ.
const overlap = time.Minute

// Handler processes documents of some kinds.
type Handler interface {
	// HandleChange receives the newest state of a document in an owned group. It may receive the same state again. It
	// must not block: it queues what must be done.
	HandleChange(ctx context.Context, change database.Change)
	// Resync lists the documents in owned groups for which HandleChange may not have been called. refresh is set for
	// periodic resyncs.
	Resync(ctx context.Context, refresh bool) error
}

// Dispatcher dispatches changes to handlers.
type Dispatcher struct {
	db       *database.DB
	owns     func(Group) bool
	feed     database.FeedOptions
	interval time.Duration
	log      *slog.Logger
	handlers []Handler

	acquired    chan struct{}
	dispatching sync.Mutex
}

// NewDispatcher returns a Dispatcher that resyncs the handlers every interval; 0 means 10 minutes.
func NewDispatcher(db *database.DB, owns func(Group) bool, feed database.FeedOptions, resync time.Duration, log *slog.Logger, handlers ...Handler) *Dispatcher {
	if resync == 0 {
		resync = 10 * time.Minute
	}
	return &Dispatcher{db: db, owns: owns, feed: feed, interval: resync, log: log, handlers: handlers, acquired: make(chan struct{}, 1)}
}

// GroupAcquired requests a resync of all handlers for an acquired group. The feed must already run, or start from an
// earlier time, so that no change is missed.
func (d *Dispatcher) GroupAcquired(Group) {
	select {
	case d.acquired <- struct{}{}:
	default:
	}
}

// Follow follows the change feeds of customers' resources and of admin operations, from shortly before started until ctx ends.
func (d *Dispatcher) Follow(ctx context.Context, started time.Time) {
	since := started.Add(-overlap)
	// Tail and TailAdmin return only the error of ctx.
	var feeds sync.WaitGroup
	feeds.Go(func() { _ = d.db.Tail(ctx, since, d.feed, d.dispatch) })
	feeds.Go(func() { _ = d.db.TailAdmin(ctx, since, d.feed, d.dispatch) })
	feeds.Wait()
}

// dispatch passes the changes in owned groups to all handlers, for one feed at a time.
func (d *Dispatcher) dispatch(ctx context.Context, changes []database.Change) error {
	d.dispatching.Lock()
	defer d.dispatching.Unlock()
	for _, change := range changes {
		if !d.owns(GroupOf(change.Key.SubscriptionID)) {
			continue
		}
		for _, handler := range d.handlers {
			handler.HandleChange(ctx, change)
		}
	}
	return nil
}

// RunResync resyncs the handlers whenever a group is acquired, and periodically, until ctx ends. A handler that failed
// is resynced again after a pause; the others are not.
func (d *Dispatcher) RunResync(ctx context.Context) {
	// due are the handlers to resync, and whether the resync is a periodic one.
	due := map[Handler]bool{}
	pauses, resync := backoff.New(minBackoff, maxBackoff), time.Now().Add(d.jitteredInterval())
	for {
		pause := time.Until(resync)
		if len(due) > 0 {
			pause = min(pause, pauses.Next())
		} else {
			pauses.Reset()
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.acquired:
			timer.Stop()
			for _, handler := range d.handlers {
				if _, again := due[handler]; !again {
					due[handler] = false
				}
			}
		case <-timer.C:
		}
		if !time.Now().Before(resync) {
			for _, handler := range d.handlers {
				due[handler] = true
			}
			resync = time.Now().Add(d.jitteredInterval())
		}
		d.resyncDue(ctx, due)
	}
}

// resyncDue resyncs the handlers in due and removes those that succeeded.
func (d *Dispatcher) resyncDue(ctx context.Context, due map[Handler]bool) {
	for _, handler := range d.handlers {
		refresh, asked := due[handler]
		if !asked {
			continue
		}
		err := handler.Resync(ctx, refresh)
		var unreadable *database.UnreadableError
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			delete(due, handler)
		case errors.As(err, &unreadable):
			// A repetition would skip the same documents.
			d.log.ErrorContext(ctx, "documents were skipped in a resync", logkey.Error, err)
			delete(due, handler)
		default:
			d.log.WarnContext(ctx, "resync failed; retrying", logkey.Error, err)
		}
	}
}

// jitteredInterval returns the time until the next periodic resync. It differs between replicas.
func (d *Dispatcher) jitteredInterval() time.Duration { return backoff.Jitter(d.interval) }
