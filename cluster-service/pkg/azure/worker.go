package azure

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// stepTimeout is the maximum duration of one attempt. It is shorter than the lease, so that no other replica attempts the
	// same step.
	stepTimeout = 25 * time.Second
	// maxVisit is the time after which a visit attempts no further step and stores the outcomes.
	maxVisit = 2 * time.Second
	// stepsAtOnce is the maximum number of steps of a cluster that are attempted at the same time.
	stepsAtOnce = 4
	// countInterval is the interval at which the metrics of certificates are computed.
	countInterval = 15 * time.Second
)

// WorkerOptions configure a Worker.
type WorkerOptions struct {
	Store *store.Store
	Steps *Steps
	// Workers is the number of clusters that are visited at the same time.
	Workers int
	// Renderer renders the works of a cluster when the IDs of its identities are read or have changed, and when a certificate
	// that they name was renewed.
	Renderer fleet.Renderer
	Metrics  prometheus.Registerer
	Log      *slog.Logger
}

// Worker attempts the steps that are due. Its methods are safe for concurrent use.
type Worker struct {
	WorkerOptions
	due   *pass.Queue
	tries *prometheus.CounterVec
	// firstEnd is the end of the certificate or credential that ends first; overdue is the number of clusters with one that is not renewed in time.
	firstEnd, overdue prometheus.Gauge
}

// NewWorker returns a worker. Run makes it work.
func NewWorker(o WorkerOptions) *Worker {
	w := &Worker{WorkerOptions: o,
		tries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_azure_steps_total",
			Help: "Attempts of steps of clusters' Azure resources, by step and outcome (done, undone, waiting, failed)."}, []string{"step", "outcome"}),
		firstEnd: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_certificates_first_end_seconds",
			Help: "End of the serving certificate or identity credential that ends first, in Unix time; 0 when there is none."}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_certificates_overdue",
			Help: "Clusters with a serving certificate or identity credential whose renewal has failed for half of the renewal period."})}
	w.due = pass.NewQueue(pass.QueueOptions{Log: o.Log, Of: "Azure resources", Workers: o.Workers, Acquire: o.Store.AcquireDueAzureSteps, Visit: w.visit})
	if o.Metrics != nil {
		o.Metrics.MustRegister(w.tries, w.firstEnd, w.overdue, o.Steps.Capacity.requests)
	}
	return w
}

// Enqueue tries the due steps of clusters soon. This process must hold their lease. Enqueue does not block.
func (w *Worker) Enqueue(clusterUIDs []string) { w.due.Add(clusterUIDs) }

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { w.due.Run(ctx) })
	group.Go(func() { w.count(ctx) })
	group.Wait()
}

// count updates the metrics of certificates until ctx ends.
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
			w.Log.Warn("counting certificates failed", logkey.Error, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// visit attempts the due steps of a cluster and stores their outcomes.
func (w *Worker) visit(ctx context.Context, uid string) error {
	t, err := w.Store.Read(ctx, uid)
	if err != nil || t.Azure == nil || t.Cluster == nil {
		return err
	}
	outcomes := w.attemptDue(ctx, t)
	if len(outcomes) == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	replaced := false
	err = w.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Aggregates[uid], w.Store.Now()
		if t.Azure == nil {
			return nil
		}
		certificate, identities, replacement := t.RenewedCertificate(), t.Azure.IdentityIDs(), t.Azure.IdentitiesReplaced()
		for _, o := range outcomes {
			t.Azure.Record(now, o)
		}
		replaced = t.Azure.IdentitiesReplaced() != replacement && !t.Azure.Deleting
		var renderer fleet.Renderer
		if (t.Azure.IdentityIDs() != identities || t.RenewedCertificate() != certificate) && !t.Cluster.Deleting() {
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
	if err == nil && replaced {
		w.Log.InfoContext(ctx, "identities of a cluster have other IDs than before", logkey.ClusterUID, uid)
	}
	return err
}

// attemptDue attempts each due step of a cluster once and returns the outcomes. It attempts steps at the same time unless one needs the other.
func (w *Worker) attemptDue(ctx context.Context, t *fleet.ClusterAggregate) (outcomes []fleet.AzureOutcome) {
	tried, finished, running := map[fleet.AzureKind]bool{}, make(chan fleet.AzureOutcome), 0
	for begun := time.Now(); ; {
		w.Steps.Region.RefreshAzure(w.Store.Now(), t)
		for running < stepsAtOnce && ctx.Err() == nil && time.Since(begun) < maxVisit {
			step := t.Azure.Next(w.Store.Now(), tried)
			if step == nil {
				break
			}
			tried[step.Kind] = true
			running++
			// An attempt reads the state from before it, because the outcomes of others change the state meanwhile.
			before := *t
			before.Azure = t.Azure.Clone()
			go func() { finished <- w.try(ctx, &before, before.Azure.Step(step.Kind)) }()
		}
		if running == 0 {
			return outcomes
		}
		o := <-finished
		running--
		outcomes = append(outcomes, o)
		t.Azure.Record(w.Store.Now(), o)
	}
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
		operation := "create"
		if o.Undo {
			operation = "remove"
		}
		w.Log.Warn("Azure step failed", logkey.ClusterUID, t.Cluster.UID, logkey.Step, string(o.Kind), logkey.Action, operation, logkey.Attempt, attempt, logkey.Error, o.Error)
	case o.Done && o.Undo:
		outcome = "undone"
	case o.Done:
		outcome = "done"
	}
	if o.Done && o.Awaited != "" {
		w.Log.Warn("Azure step is done without an answer of Azure", logkey.ClusterUID, t.Cluster.UID, logkey.Step, string(o.Kind), logkey.Error, o.Awaited)
	}
	if o.Error == "" {
		w.Log.Info("Azure step attempted", logkey.ClusterUID, t.Cluster.UID, logkey.Step, string(o.Kind), logkey.Outcome, outcome)
	}
	w.tries.WithLabelValues(string(o.Kind), outcome).Inc()
	return o
}
