// Package due visits the clusters that have something due: work whose row in the database says so, and from when on. Nothing
// of it is in memory alone: a Queue is told of clusters whose work was leased to this replica, visits each of them by one
// worker at a time, and otherwise looks into the database for what is due and nobody's: retries, and what replicas that died
// had leased.
package due

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// queueSize bounds the clusters that wait in memory; those beyond are found in the database when their lease is over.
	queueSize = 4096
	// scanInterval is how often the database is asked when nothing else prompts it.
	scanInterval = 2 * time.Second
	scanLimit    = 200
)

// Options are what a queue works with.
type Options struct {
	// Of names what is due, for the log, as in "works".
	Of string
	// Workers is how many clusters are visited at once.
	Workers int
	// Acquire takes the lease of what is due in the database, of so many rows at most, and returns the clusters.
	Acquire func(ctx context.Context, limit int) (clusterUIDs []string, err error)
	// Visit does what is due of a cluster. What it leaves undone is due again when the database says so.
	Visit func(ctx context.Context, clusterUID string) error
	// Overflowed, if set, is told of each cluster that did not fit in.
	Overflowed func()
}

// Queue has the clusters that wait for a visit.
type Queue struct {
	Options
	queue chan string
	// sooner tells the scan of something that is due before it would look.
	sooner chan time.Duration

	mu sync.Mutex
	// waiting has the clusters that are in the queue, or are to be visited once more; busy those that are being visited.
	waiting, busy map[string]bool
}

// NewQueue makes a queue; Run runs it.
func NewQueue(o Options) *Queue {
	return &Queue{Options: o, queue: make(chan string, queueSize), sooner: make(chan time.Duration, 1),
		waiting: map[string]bool{}, busy: map[string]bool{}}
}

// Add has clusters visited soon, whose lease the caller holds. It does not block: what does not fit is found in the database
// when the lease is over.
func (q *Queue) Add(clusterUIDs []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, uid := range clusterUIDs {
		if q.waiting[uid] {
			continue
		}
		select {
		case q.queue <- uid:
			q.waiting[uid] = true
		default:
			if q.Overflowed != nil {
				q.Overflowed()
			}
		}
	}
}

// ScanIn has the database asked after a delay, if that is sooner than it would be.
func (q *Queue) ScanIn(delay time.Duration) {
	if delay >= scanInterval {
		return
	}
	select {
	case q.sooner <- delay:
	default:
	}
}

// Run visits until ctx is over.
func (q *Queue) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range q.Workers {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case uid := <-q.queue:
					q.serve(ctx, uid)
				}
			}
		})
	}
	group.Go(func() { q.scan(ctx) })
	group.Wait()
}

// serve visits a cluster, unless another worker is at it, who then visits it once more.
func (q *Queue) serve(ctx context.Context, uid string) {
	q.mu.Lock()
	if q.busy[uid] {
		// Stays marked as waiting: the other worker puts it back into the queue.
		q.mu.Unlock()
		return
	}
	delete(q.waiting, uid)
	q.busy[uid] = true
	q.mu.Unlock()

	if err := q.Visit(ctx, uid); err != nil && ctx.Err() == nil {
		slog.Warn("what is due of a cluster was interrupted", "due", q.Of, "cluster_uid", uid, "error", err)
	}

	q.mu.Lock()
	delete(q.busy, uid)
	again := q.waiting[uid]
	delete(q.waiting, uid)
	q.mu.Unlock()
	if again {
		q.Add([]string{uid})
	}
}

func (q *Queue) scan(ctx context.Context) {
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case delay := <-q.sooner:
			// Never later than it would: whoever is told again and again of what is due in a while would never look.
			if at := time.Now().Add(delay); at.Before(next) {
				next = at
				timer.Reset(delay)
			}
			continue
		case <-timer.C:
			next = time.Now().Add(scanInterval)
			timer.Reset(scanInterval)
		}
		found, err := q.Acquire(ctx, scanLimit)
		if err != nil {
			if ctx.Err() == nil {
				slog.Warn("looking for what is due failed", "due", q.Of, "error", err)
			}
			continue
		}
		q.Add(found)
	}
}
