package store

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sort"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	watchReadLimit = 500
	watchReadRetry = time.Second
	// watchResync is the period of reads without a notification, because notifications may be lost.
	watchResync = 30 * time.Second
)

// WatchSource is the part of the store that a hub reads.
type WatchSource interface {
	Changes(ctx context.Context, after int64, limit int) ([]Change, Clock, error)
	Clock(ctx context.Context) (Clock, error)
	// RestartRevisions starts a new history of revisions if the current ones are lower than one that was seen.
	RestartRevisions(ctx context.Context, seen int64) error
}

// ErrCompacted is returned for a revision after which a watch could miss a deletion, or that does not exist.
var ErrCompacted = errors.New("the revision is not kept any more, or is from another database")

// WatchHub follows the changes of the fleet.
type WatchHub struct {
	log    *slog.Logger
	source WatchSource
	size   int
	woken  chan struct{}
	// stopped is closed when Run has returned.
	stopped chan struct{}

	mu sync.Mutex
	// ring contains the changes after floor and up to head, in order. A resource may occur more than once.
	ring        []Change
	floor, head int64
	// wanted is the newest revision for which the hub was woken and has not checked since.
	wanted int64
	// began is the first revision of the current history. A watcher from before it may have seen changes that were lost,
	// and must list.
	began   int64
	started bool
	moved   chan struct{} // closed and replaced when head moves
}

// NewWatchHub returns a hub that stores up to size changes. Run runs it.
func NewWatchHub(source WatchSource, size int, log *slog.Logger) *WatchHub {
	return &WatchHub{log: log, source: source, size: size, woken: make(chan struct{}, 1), stopped: make(chan struct{}), moved: make(chan struct{})}
}

// Wake makes the hub read soon unless it has read up to revision; 0 always wakes it. It does not block.
func (h *WatchHub) Wake(revision int64) {
	h.mu.Lock()
	known := revision > 0 && revision <= h.head
	if revision == 0 {
		revision = math.MaxInt64
	}
	h.wanted = max(h.wanted, revision)
	h.mu.Unlock()
	if known {
		return
	}
	select {
	case h.woken <- struct{}{}:
	default:
	}
}

// ErrWatchStopped is returned to watchers when the hub has stopped.
var ErrWatchStopped = errors.New("the process is stopping")

// Run follows the changes until ctx is done, which ends all watches.
func (h *WatchHub) Run(ctx context.Context) {
	defer close(h.stopped)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.woken:
			// A commit of this process wakes the hub before its notification arrives.
			if !h.behind() {
				continue
			}
		case <-timer.C:
		}
		delay := watchResync
		if err := h.follow(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			h.log.Warn("following the changes of the fleet failed", logkey.Error, err)
			delay = watchReadRetry
		}
		timer.Reset(delay)
	}
}

// behind reports whether the hub was woken for a revision that it has not read yet.
func (h *WatchHub) behind() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := h.wanted
	h.wanted = 0
	return wanted > h.head
}

// follow reads up to the newest revision.
func (h *WatchHub) follow(ctx context.Context) error {
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
		changes, clock, err := h.source.Changes(ctx, head, watchReadLimit)
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
		if len(changes) == watchReadLimit {
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
		if len(changes) < watchReadLimit {
			return nil
		}
	}
}

// begin drops the ring and continues from the newest revision. h.mu is held.
func (h *WatchHub) begin(clock Clock) {
	h.ring, h.floor, h.began = nil, clock.Revision, clock.RestartedAt
	h.advance(nil, clock.Revision)
}

// advance moves the head. h.mu is held.
func (h *WatchHub) advance(changes []Change, head int64) {
	h.ring = append(h.ring, changes...)
	if over := len(h.ring) - h.size; over > 0 {
		h.floor = h.ring[over-1].Revision
		h.ring = append([]Change(nil), h.ring[over:]...)
	}
	h.head = head
	close(h.moved)
	h.moved = make(chan struct{})
}

// Check returns an error if a watch cannot begin after a revision.
func (h *WatchHub) Check(ctx context.Context, after int64) error {
	clock, err := h.source.Clock(ctx)
	if err != nil {
		return err
	}
	if after > clock.Revision || after > 0 && after < max(clock.Compacted, clock.RestartedAt) {
		return ErrCompacted
	}
	return nil
}

// WatchBatch is the next part of a watch.
type WatchBatch struct {
	Changes []Change
	// Revision is the revision up to which the watcher has received all changes after this batch.
	Revision int64
	// Current reports that there were no further changes.
	Current bool
}

// Next returns the changes after a revision. Without changes, it waits until there are some, ctx is done or patience has
// passed, and then returns a current batch without changes.
func (h *WatchHub) Next(ctx context.Context, after int64, patience time.Duration) (WatchBatch, error) {
	var timeout <-chan time.Time
	for {
		h.mu.Lock()
		started, head, floor, began, moved := h.started, h.head, h.floor, h.began, h.moved
		if started && after > 0 && after < began {
			h.mu.Unlock()
			return WatchBatch{}, ErrCompacted
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
			return WatchBatch{}, ctx.Err()
		case <-h.stopped:
			return WatchBatch{}, ErrWatchStopped
		case <-timeout:
			return WatchBatch{Revision: after, Current: true}, nil
		case <-moved:
		}
	}
}

// cut returns changes after a revision from the ring. Of several changes of one resource it returns only the newest, at its
// position. h.mu is held.
func (h *WatchHub) cut(after int64) WatchBatch {
	i := sort.Search(len(h.ring), func(i int) bool { return h.ring[i].Revision > after })
	changes := h.ring[i:min(len(h.ring), i+watchReadLimit)]
	batch := WatchBatch{Revision: h.head, Current: true}
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
func (h *WatchHub) read(ctx context.Context, after int64) (WatchBatch, error) {
	changes, clock, err := h.source.Changes(ctx, after, watchReadLimit)
	if err != nil {
		return WatchBatch{}, err
	}
	if after > 0 && after < max(clock.Compacted, clock.RestartedAt) {
		return WatchBatch{}, ErrCompacted
	}
	batch := WatchBatch{Changes: changes, Revision: clock.Revision, Current: true}
	if len(changes) == watchReadLimit {
		batch.Revision, batch.Current = changes[len(changes)-1].Revision, false
	}
	return batch, nil
}
