package azure

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

const (
	// queueSize bounds the clusters that wait in memory; those beyond are found in the database when their lease is over.
	queueSize = 4096
	// scanInterval is how often the database is asked for due steps when nothing else prompts it.
	scanInterval = 2 * time.Second
	scanLimit    = 200
	// stepTimeout bounds one try of a step. It is shorter than the lease, so that nobody else is at it.
	stepTimeout = 25 * time.Second
	// visitTime is how long a visit goes on with further steps before it stores what came of those that were tried.
	visitTime = 2 * time.Second
)

// WorkerOptions are what a worker works with.
type WorkerOptions struct {
	Store *store.Store
	Steps *Steps
	// Workers is how many clusters are visited at once.
	Workers int
	// Publish is told of clusters whose works became due.
	Publish func(clusterUIDs []string)
	Metrics prometheus.Registerer
}

// Worker tries steps that are due.
type Worker struct {
	WorkerOptions
	queue  chan string
	sooner chan time.Duration
	tries  *prometheus.CounterVec

	mu sync.Mutex
	// waiting has the clusters that are in the queue, or come again; busy those that are being visited.
	waiting, busy map[string]bool
}

// NewWorker makes a worker; Run runs it.
func NewWorker(o WorkerOptions) *Worker {
	w := &Worker{WorkerOptions: o, queue: make(chan string, queueSize), sooner: make(chan time.Duration, 1), waiting: map[string]bool{}, busy: map[string]bool{},
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_azure_steps_total",
			Help: "Tries of steps of clusters' Azure resources, by step and outcome: done, undone, waiting, failed."}, []string{"step", "outcome"})}
	if o.Metrics != nil {
		o.Metrics.MustRegister(w.tries)
	}
	return w
}

// Due has clusters visited soon, whose lease the caller holds. It does not block: what does not fit is found in the database
// when the lease is over.
func (w *Worker) Due(clusterUIDs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range clusterUIDs {
		if w.waiting[uid] {
			continue
		}
		select {
		case w.queue <- uid:
			w.waiting[uid] = true
		default:
			return
		}
	}
}

// Run works until ctx is over.
func (w *Worker) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range w.Workers {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case uid := <-w.queue:
					w.serve(ctx, uid)
				}
			}
		})
	}
	group.Go(func() { w.scan(ctx) })
	group.Wait()
}

// serve visits a cluster, unless another is at it, who then visits it once more.
func (w *Worker) serve(ctx context.Context, uid string) {
	w.mu.Lock()
	if w.busy[uid] {
		w.mu.Unlock()
		return
	}
	delete(w.waiting, uid)
	w.busy[uid] = true
	w.mu.Unlock()

	if err := w.visit(ctx, uid); err != nil && ctx.Err() == nil {
		slog.Warn("work on a cluster's Azure resources was interrupted", "cluster_uid", uid, "error", err)
	}

	w.mu.Lock()
	delete(w.busy, uid)
	again := w.waiting[uid]
	delete(w.waiting, uid)
	w.mu.Unlock()
	if again {
		w.Due([]string{uid})
	}
}

func (w *Worker) scan(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case delay := <-w.sooner:
			timer.Reset(delay)
			continue
		case <-timer.C:
			timer.Reset(scanInterval)
		}
		due, err := w.Store.TakeAzureDue(ctx, scanLimit)
		if err != nil {
			if ctx.Err() == nil {
				slog.Warn("looking for due Azure resources failed", "error", err)
			}
			continue
		}
		w.Due(due)
	}
}

// visit tries the steps of a cluster that are due, one after the other, and stores what came of them.
func (w *Worker) visit(ctx context.Context, uid string) error {
	t, err := w.Store.Read(ctx, uid)
	if err != nil || t.Azure == nil || t.Cluster == nil {
		return err
	}
	var outcomes []fleet.AzureOutcome
	tried := map[fleet.AzureKind]bool{}
	begun := time.Now()
	for ctx.Err() == nil && time.Since(begun) < visitTime {
		step := t.Azure.Next(w.Store.Now(), tried)
		if step == nil {
			break
		}
		tried[step.Kind] = true
		o := w.try(ctx, t, step)
		outcomes = append(outcomes, o)
		t.Azure.Record(w.Store.Now(), o)
		w.Steps.Region.RefreshAzure(w.Store.Now(), t)
	}
	if len(outcomes) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	result, err := w.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Tenancies[uid], w.Store.Now()
		if t.Azure == nil {
			return nil
		}
		for _, o := range outcomes {
			t.Azure.Record(now, o)
		}
		if err := w.Steps.Region.Settle(now, t, nil); err != nil {
			return err
		}
		if t.Azure != nil {
			if at, due := t.Azure.DueTime(); due && at.After(now) {
				w.lookIn(at.Sub(now))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.Publish(result.Due)
	return nil
}

// lookIn has the database asked for due steps after a delay, if that is sooner than it would be.
func (w *Worker) lookIn(delay time.Duration) {
	if delay >= scanInterval {
		return
	}
	select {
	case w.sooner <- delay:
	default:
	}
}

func (w *Worker) try(ctx context.Context, t *fleet.Tenancy, step *fleet.AzureStep) fleet.AzureOutcome {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	attempt := step.Attempts + 1
	o := w.Steps.Try(ctx, t, step)
	outcome := "waiting"
	switch {
	case o.Error != "":
		outcome = "failed"
		slog.Warn("a step in Azure failed", "cluster_uid", t.Cluster.UID, "step", string(o.Kind), "undo", o.Undo, "attempt", attempt, "error", o.Error)
	case o.Done && o.Undo:
		outcome = "undone"
	case o.Done:
		outcome = "done"
	}
	if o.Error == "" {
		slog.Info("tried a step in Azure", "cluster_uid", t.Cluster.UID, "step", string(o.Kind), "outcome", outcome)
	}
	w.tries.WithLabelValues(string(o.Kind), outcome).Inc()
	return o
}
