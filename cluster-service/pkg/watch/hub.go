// Package watch distributes the changes of the fleet to watchers. A Hub follows the database with one reader, which commits
// wake, and stores the newest changes in a ring. Every watcher has a cursor into the ring and reads older changes from the
// database. So a slow watcher blocks nobody, needs no memory and misses nothing. Package store makes revisions visible in
// order, so a cursor is a single number.
package watch

import (
	"context"
	"errors"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	readLimit = 500
	readRetry = time.Second
	// resync is the period of reads without a notification, because notifications may be lost.
	resync = 30 * time.Second
)

// Source is the part of the store that a hub reads.
type Source interface {
	Changes(ctx context.Context, after int64, limit int) ([]store.Change, store.Clock, error)
	Clock(ctx context.Context) (store.Clock, error)
	// RestartRevisions starts a new history of revisions if the current ones are lower than one that was seen.
	RestartRevisions(ctx context.Context, seen int64) error
}

// ErrCompacted is returned for a revision after which a watch could miss a deletion, or that does not exist.
var ErrCompacted = errors.New("the revision is not kept any more, or is from another database")

// Hub follows the changes of the fleet.
type Hub struct {
	log    *slog.Logger
	source Source
	size   int
	woken  chan struct{}
	// stopped is closed when Run has returned.
	stopped chan struct{}

	mu sync.Mutex
	// ring contains the changes after floor and up to head, in order. A resource may occur more than once.
	ring        []store.Change
	floor, head int64
	// began is the first revision of the current history. A watcher from before it may have seen changes that were lost,
	// and must list.
	began   int64
	started bool
	moved   chan struct{} // closed and replaced when head moves
}

// NewHub returns a hub that stores up to size changes. Run runs it.
func NewHub(source Source, size int, log *slog.Logger) *Hub {
	return &Hub{log: log, source: source, size: size, woken: make(chan struct{}, 1), stopped: make(chan struct{}), moved: make(chan struct{})}
}

// Wake makes the hub read soon unless it has read up to revision; 0 always wakes it. It does not block.
func (h *Hub) Wake(revision int64) {
	h.mu.Lock()
	known := revision > 0 && revision <= h.head
	h.mu.Unlock()
	if known {
		return
	}
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// ErrStopped is returned to watchers when the hub has stopped.
var ErrStopped = errors.New("the process is stopping")

// Run follows the changes until ctx is done, which ends all watches.
func (h *Hub) Run(ctx context.Context) {
	defer close(h.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.woken:
		case <-timer.C:
		}
		delay := resync
		if err := h.follow(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			h.log.Warn("following the changes of the fleet failed", logkey.Error, err)
			delay = readRetry
		}
		timer.Reset(delay)
	}
}

// follow reads up to the newest revision.
func (h *Hub) follow(ctx context.Context) error {
	h.mu.Lock()
	started, head := h.started, h.head
	h.mu.Unlock()
	if !started {
		clock, err := h.source.Clock(ctx)
		if err != nil {
			return err
		}
		h.mu.Lock()
		h.started = true
		h.begin(clock)
		h.mu.Unlock()
		return nil
	}
	for {
		changes, clock, err := h.source.Changes(ctx, head, readLimit)
		if err != nil {
			return err
		}
		if clock.Revision < head {
			// Revisions go back only if the database lost commits.
			if err := h.source.RestartRevisions(ctx, head); err != nil {
				return err
			}
			continue
		}
		next := clock.Revision
		if len(changes) == readLimit {
			next = changes[len(changes)-1].Revision
		}
		h.mu.Lock()
		if clock.RestartedAt > h.began {
			h.log.Warn("revisions restarted: the database server is another one or was restarted", logkey.Revision, clock.Revision)
			h.begin(clock)
			h.mu.Unlock()
			return nil
		}
		if next > h.head {
			h.advance(changes, next)
		}
		head = h.head
		h.mu.Unlock()
		if len(changes) < readLimit {
			return nil
		}
	}
}

// begin drops the ring and continues from the newest revision. h.mu is held.
func (h *Hub) begin(clock store.Clock) {
	h.ring, h.floor, h.began = nil, clock.Revision, clock.RestartedAt
	h.advance(nil, clock.Revision)
}

// advance moves the head. h.mu is held.
func (h *Hub) advance(changes []store.Change, head int64) {
	h.ring = append(h.ring, changes...)
	if over := len(h.ring) - h.size; over > 0 {
		h.floor = h.ring[over-1].Revision
		h.ring = append([]store.Change(nil), h.ring[over:]...)
	}
	h.head = head
	close(h.moved)
	h.moved = make(chan struct{})
}

// Check returns an error if a watch cannot begin after a revision.
func (h *Hub) Check(ctx context.Context, after int64) error {
	clock, err := h.source.Clock(ctx)
	if err != nil {
		return err
	}
	if after > clock.Revision || after > 0 && after < max(clock.Compacted, clock.RestartedAt) {
		return ErrCompacted
	}
	return nil
}

// Batch is the next part of a watch.
type Batch struct {
	Changes []store.Change
	// Revision is the revision up to which the watcher has received all changes after this batch.
	Revision int64
	// Current reports that there were no further changes.
	Current bool
}

// Next returns the changes after a revision. Without changes, it waits until there are some, ctx is done or patience has
// passed, and then returns a current batch without changes.
func (h *Hub) Next(ctx context.Context, after int64, patience time.Duration) (Batch, error) {
	var timeout <-chan time.Time
	for {
		h.mu.Lock()
		started, head, floor, began, moved := h.started, h.head, h.floor, h.began, h.moved
		if started && after > 0 && after < began {
			h.mu.Unlock()
			return Batch{}, ErrCompacted
		}
		if started && after >= floor && after < head {
			batch := h.cut(after)
			h.mu.Unlock()
			return batch, nil
		}
		h.mu.Unlock()
		if started && after < floor {
			return h.read(ctx, after)
		}
		// The watcher is up to date, or ahead of the hub. In both cases the head will move.
		if timeout == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		case <-h.stopped:
			return Batch{}, ErrStopped
		case <-timeout:
			return Batch{Revision: after, Current: true}, nil
		case <-moved:
		}
	}
}

// cut returns changes after a revision from the ring. Of several changes of one resource it returns only the newest, at its
// position. h.mu is held.
func (h *Hub) cut(after int64) Batch {
	i := sort.Search(len(h.ring), func(i int) bool { return h.ring[i].Revision > after })
	changes := h.ring[i:min(len(h.ring), i+readLimit)]
	batch := Batch{Revision: h.head, Current: true}
	if i+len(changes) < len(h.ring) {
		batch.Revision, batch.Current = changes[len(changes)-1].Revision, false
	}
	newest := make(map[string]int64, len(changes))
	for _, c := range changes {
		newest[c.UID()] = c.Revision
	}
	for _, c := range changes {
		if newest[c.UID()] == c.Revision {
			batch.Changes = append(batch.Changes, c)
		}
	}
	return batch
}

// read returns changes from the database for a watcher that is behind the ring.
func (h *Hub) read(ctx context.Context, after int64) (Batch, error) {
	changes, clock, err := h.source.Changes(ctx, after, readLimit)
	if err != nil {
		return Batch{}, err
	}
	if after > 0 && after < max(clock.Compacted, clock.RestartedAt) {
		return Batch{}, ErrCompacted
	}
	batch := Batch{Changes: changes, Revision: clock.Revision, Current: true}
	if len(changes) == readLimit {
		batch.Revision, batch.Current = changes[len(changes)-1].Revision, false
	}
	return batch, nil
}
