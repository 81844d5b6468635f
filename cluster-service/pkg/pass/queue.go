package pass

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// queueSize bounds the clusters in memory. A scan finds the others when their lease has expired.
	queueSize = 4096
	// scanInterval is the period of scans of the database.
	scanInterval = 2 * time.Second
	scanLimit    = 200
)

// QueueOptions configure a queue.
type QueueOptions struct {
	// Log receives failures; nil discards them.
	Log *slog.Logger
	// Of names the due rows in logs, for example "works".
	Of string
	// Workers is the number of clusters that are visited concurrently.
	Workers int
	// Acquire acquires the lease of at most limit due rows, and returns their clusters.
	Acquire func(ctx context.Context, limit int) (clusterUIDs []string, err error)
	// Visit processes the due rows of a cluster. What it does not complete is due again as its row states.
	Visit func(ctx context.Context, clusterUID string) error
	// Overflowed, if set, is called for each cluster that did not fit into the queue.
	Overflowed func()
}

// Queue holds the clusters that wait for a visit.
type Queue struct {
	QueueOptions
	queue chan string
	// sooner receives requests for a scan before the next regular one.
	sooner chan time.Duration

	mu sync.Mutex
	// waiting contains the clusters that are queued, or that must be visited again; busy contains those that are being
	// visited.
	waiting, busy map[string]bool
}

// NewQueue returns a queue. Run runs it.
func NewQueue(o QueueOptions) *Queue {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Queue{QueueOptions: o, queue: make(chan string, queueSize), sooner: make(chan time.Duration, 1),
		waiting: map[string]bool{}, busy: map[string]bool{}}
}

// Add enqueues clusters whose lease this process holds. It does not block. A scan finds what does not fit when the lease
// has expired.
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

// ScanIn scans the database after a delay, unless the next regular scan is sooner.
func (q *Queue) ScanIn(delay time.Duration) {
	if delay >= scanInterval {
		return
	}
	select {
	case q.sooner <- delay:
	default:
	}
}

// Run visits clusters until ctx is done.
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

// serve visits a cluster. If another worker visits it already, that worker visits it again afterwards.
func (q *Queue) serve(ctx context.Context, uid string) {
	q.mu.Lock()
	if q.busy[uid] {
		// The cluster stays marked as waiting. The other worker enqueues it again.
		q.mu.Unlock()
		return
	}
	delete(q.waiting, uid)
	q.busy[uid] = true
	q.mu.Unlock()

	if err := q.Visit(ctx, uid); err != nil && ctx.Err() == nil {
		q.Log.Warn("processing the due rows of a cluster failed", logkey.Due, q.Of, logkey.ClusterUID, uid, logkey.Error, err)
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
			// A scan is never postponed. Otherwise frequent requests could postpone it forever.
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
				q.Log.Warn("scanning for due rows failed", logkey.Due, q.Of, logkey.Error, err)
			}
			continue
		}
		q.Add(found)
	}
}
