package azure

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/due"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

const (
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
	due   *due.Queue
	tries *prometheus.CounterVec
}

// NewWorker makes a worker; Run runs it.
func NewWorker(o WorkerOptions) *Worker {
	w := &Worker{WorkerOptions: o,
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_azure_steps_total",
			Help: "Tries of steps of clusters' Azure resources, by step and outcome: done, undone, waiting, failed."}, []string{"step", "outcome"})}
	w.due = due.NewQueue(due.Options{Of: "Azure resources", Workers: o.Workers, Take: o.Store.TakeAzureDue, Visit: w.visit})
	if o.Metrics != nil {
		o.Metrics.MustRegister(w.tries)
	}
	return w
}

// Due has clusters visited soon, whose lease the caller holds. It does not block.
func (w *Worker) Due(clusterUIDs []string) { w.due.Add(clusterUIDs) }

// Run works until ctx is over.
func (w *Worker) Run(ctx context.Context) { w.due.Run(ctx) }

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
				w.due.LookIn(at.Sub(now))
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
