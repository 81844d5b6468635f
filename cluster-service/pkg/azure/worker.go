package azure

import (
	"context"
	"log/slog"
	"sync"
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
	// countInterval is how old the counts of what ends are at most.
	countInterval = 15 * time.Second
)

// WorkerOptions are what a worker works with.
type WorkerOptions struct {
	Store *store.Store
	Steps *Steps
	// Workers is how many clusters are visited at once.
	Workers int
	// Renderer renders what a cluster's works are to carry when something that they name was renewed.
	Renderer fleet.Renderer
	Metrics  prometheus.Registerer
}

// Worker tries steps that are due.
type Worker struct {
	WorkerOptions
	due   *due.Queue
	tries *prometheus.CounterVec
	// firstEnd is when the first certificate ends, in Unix seconds, 0 when none does; overdue counts those not renewed in time.
	firstEnd, overdue prometheus.Gauge
}

// NewWorker makes a worker; Run runs it.
func NewWorker(o WorkerOptions) *Worker {
	w := &Worker{WorkerOptions: o,
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_azure_steps_total",
			Help: "Tries of steps of clusters' Azure resources, by step and outcome: done, undone, waiting, failed."}, []string{"step", "outcome"}),
		firstEnd: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_certificates_first_end_seconds",
			Help: "When the first serving certificate of a cluster's API server ends, in Unix time; 0 when there is none."}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_certificates_overdue",
			Help: "Serving certificates whose renewal has failed for half of the time that there is for it."})}
	w.due = due.NewQueue(due.Options{Of: "Azure resources", Workers: o.Workers, Acquire: o.Store.AcquireDueAzureSteps, Visit: w.visit})
	if o.Metrics != nil {
		o.Metrics.MustRegister(w.tries, w.firstEnd, w.overdue)
	}
	return w
}

// Enqueue tries the due steps of clusters soon. This process must hold their lease. Enqueue does not block.
func (w *Worker) Enqueue(clusterUIDs []string) { w.due.Add(clusterUIDs) }

// Run works until ctx is over.
func (w *Worker) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { w.due.Run(ctx) })
	group.Go(func() { w.count(ctx) })
	group.Wait()
}

// count keeps the counts of what ends until ctx is over.
func (w *Worker) count(ctx context.Context) {
	ticker := time.NewTicker(countInterval)
	defer ticker.Stop()
	for {
		first, overdue, err := w.Store.CertificateExpiry(ctx)
		switch {
		case err == nil:
			w.overdue.Set(float64(overdue))
			w.firstEnd.Set(0)
			if !first.IsZero() {
				w.firstEnd.Set(float64(first.Unix()))
			}
		case ctx.Err() == nil:
			slog.Warn("counting the certificates that end failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
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
	w.Steps.Region.RefreshAzure(w.Store.Now(), t)
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
	return w.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Aggregates[uid], w.Store.Now()
		if t.Azure == nil {
			return nil
		}
		certificate := t.RenewedCertificate()
		for _, o := range outcomes {
			t.Azure.Record(now, o)
		}
		var renderer fleet.Renderer
		if t.RenewedCertificate() != certificate && !t.Cluster.Deleting() {
			renderer = w.Renderer
		}
		if err := w.Steps.Region.Settle(now, t, renderer); err != nil {
			return err
		}
		if t.Azure != nil {
			if at, due := t.Azure.DueTime(); due && at.After(now) {
				w.due.ScanIn(at.Sub(now))
			}
		}
		return nil
	})
}

func (w *Worker) try(ctx context.Context, t *fleet.ClusterAggregate, step *fleet.AzureStep) fleet.AzureOutcome {
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
