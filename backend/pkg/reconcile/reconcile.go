// Package reconcile sees to it that the fleet holds what customers were promised, also when Cluster Service's database, or Cosmos
// DB, was restored to an earlier state. It compares the two (internal/reconciliation) when the history of the fleet's revisions
// began anew, when an SRE asks for it, and once in a long while; never otherwise. What Cluster Service had accepted and lost, a
// state or a deletion, is sent again. What nobody can know the customer's will of is left as it is, and counted as a concern.
//
// It keeps nothing: a comparison that a crash cuts short is made again, because the groups that it is for keep no revision until
// it is done, and whoever has them then lists the fleet anew.
package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// Options of a Reconciler; the zero value of each means its default.
type Options struct {
	// Interval is how often the two sides are compared without a cause; 0 means daily, negative never.
	Interval time.Duration
	// ReportOnly has nothing sent until an SRE asks for it: for after Cosmos DB was restored to an earlier state.
	ReportOnly bool
	// Workers is how many clusters are mended at once; 0 means 8.
	Workers int
	// FindingsInterval is how soon they are compared again while there is a concern, to find out that it is none any more; 0 means 10 m.
	FindingsInterval time.Duration
	// MinBackoff and Most are the pauses before what could not be done is tried again; 0 means 1 s and 1 m.
	MinBackoff, MaxBackoff time.Duration
	// PageSize is how many resources of each side are held at a time; 0 means 500.
	PageSize int
}

func (o Options) complete() Options {
	for value, fallback := range map[*time.Duration]time.Duration{&o.Interval: 24 * time.Hour, &o.MinBackoff: time.Second, &o.MaxBackoff: time.Minute, &o.FindingsInterval: 10 * time.Minute} {
		if *value == 0 {
			*value = fallback
		}
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	return o
}

// Reconciler compares and mends for the groups that this replica has.
type Reconciler struct {
	db           *database.DB
	rpc          clusterservicev1.ClusterServiceClient
	controller   *lifecycle.Controller
	owns         func(partition.Group) bool
	options      Options
	log          *slog.Logger
	findings     *prometheus.GaugeVec
	comparisons  *prometheus.CounterVec
	pendingGauge prometheus.Gauge

	requested chan struct{}
	mu        sync.Mutex
	// pending are the groups of which the fleet may have lost something, each with the number of the suspicion.
	pending     map[partition.Group]int
	lastRequest int
}

// New makes a Reconciler.
func New(db *database.DB, rpc clusterservicev1.ClusterServiceClient, controller *lifecycle.Controller, owns func(partition.Group) bool, options Options, metrics prometheus.Registerer, log *slog.Logger) *Reconciler {
	r := &Reconciler{
		db: db, rpc: rpc, controller: controller, owns: owns, options: options.complete(), log: log,
		requested: make(chan struct{}, 1), pending: map[partition.Group]int{},
		findings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "backend_reconciliation_findings", Help: "Unresolved drift that needs an operator, by type, as of the last comparison.",
		}, []string{"type"}),
		comparisons: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_reconciliations_total", Help: "Comparisons of Cosmos DB with Cluster Service, by outcome.",
		}, []string{"outcome"}),
		pendingGauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "backend_reconciliation_groups_pending", Help: "Groups of subscriptions of this replica that wait for a comparison because the fleet may have lost state.",
		}),
	}
	for _, concern := range findingTypes {
		r.findings.WithLabelValues(string(concern)).Set(0)
	}
	metrics.MustRegister(r.findings, r.comparisons, r.pendingGauge)
	return r
}

// RequestComparison has groups compared because the fleet may have lost something of them.
func (r *Reconciler) RequestComparison(groups []partition.Group) {
	r.mu.Lock()
	r.lastRequest++
	for _, g := range groups {
		r.pending[g] = r.lastRequest
	}
	r.pendingGauge.Set(float64(len(r.pending)))
	r.mu.Unlock()
	select {
	case r.requested <- struct{}{}:
	default:
	}
}

// ComparisonPending says whether a group waits to be compared.
func (r *Reconciler) ComparisonPending(group partition.Group) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[group] > 0
}

// GroupLost ends with a group: whoever has it next finds out for itself.
func (r *Reconciler) GroupLost(group partition.Group) {
	r.mu.Lock()
	delete(r.pending, group)
	r.pendingGauge.Set(float64(len(r.pending)))
	r.mu.Unlock()
}

// Run compares until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	pause := r.options.MinBackoff
	timer := time.NewTimer(r.untilNext())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.requested:
		case <-timer.C:
		}
		suspicion := r.pendingRequests()
		result, err := r.run(ctx, r.owns, !r.options.ReportOnly)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			r.setFindings(result)
			r.clearPending(suspicion)
			pause = r.options.MinBackoff
			wait := r.untilNext()
			if len(result.Findings) > 0 {
				wait = min(wait, r.options.FindingsInterval/2+rand.N(r.options.FindingsInterval))
			}
			timer.Reset(wait)
			continue
		}
		r.log.WarnContext(ctx, "comparing Cosmos DB with Cluster Service; will do so again", "error", err)
		timer.Reset(pause/2 + rand.N(pause))
		pause = min(2*pause, r.options.MaxBackoff)
	}
}

// untilNext is until the next comparison without a cause: replicas do not make them in step.
func (r *Reconciler) untilNext() time.Duration {
	if r.options.Interval < 0 {
		return 1<<63 - 1
	}
	return r.options.Interval/2 + rand.N(r.options.Interval)
}

func (r *Reconciler) pendingRequests() map[partition.Group]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	suspicion := make(map[partition.Group]int, len(r.pending))
	for g, number := range r.pending {
		suspicion[g] = number
	}
	return suspicion
}

// clearPending ends the suspicions that there were, and not those that came since.
func (r *Reconciler) clearPending(suspicion map[partition.Group]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for g, number := range suspicion {
		if r.pending[g] == number {
			delete(r.pending, g)
		}
	}
	r.pendingGauge.Set(float64(len(r.pending)))
}

// ReconcileAll compares all groups, whoever has them, and mends: it is what SREs ask for. What somebody else does at the same time makes
// none of it wrong.
func (r *Reconciler) ReconcileAll(ctx context.Context) (Result, error) {
	return r.run(ctx, func(partition.Group) bool { return true }, true)
}

// run compares the subscriptions of some groups and, if it is to, mends what it finds.
func (r *Reconciler) run(ctx context.Context, owns func(partition.Group) bool, mend bool) (Result, error) {
	started := time.Now()
	m := &repair{r: r, enabled: mend, work: make(chan []reconciliation.Drift, r.options.Workers), result: Result{Findings: map[Finding]int{}}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	for range r.options.Workers {
		workers.Go(func() {
			for findings := range m.work {
				m.repairCluster(ctx, findings)
			}
		})
	}
	var together []reconciliation.Drift
	hand := func() error {
		if len(together) == 0 {
			return nil
		}
		select {
		case m.work <- together:
			together = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	counts, err := reconciliation.Compare(ctx, r.db, reconciliation.FleetInventory{Client: r.rpc}, reconciliation.Options{
		Include: func(subscription string) bool { return owns(partition.Of(subscription)) }, PageSize: r.options.PageSize,
	}, func(f reconciliation.Drift) error {
		// What belongs to one cluster is mended in its order, by one: a node pool needs its cluster.
		if len(together) > 0 && (together[0].Cluster() != f.Cluster() || len(together) == maxClusterDrifts) {
			if err := hand(); err != nil {
				return err
			}
		}
		together = append(together, f)
		return nil
	})
	if err == nil {
		err = hand()
	}
	close(m.work)
	workers.Wait()
	if err != nil && apierror.KindOf(err) == apierror.MethodNotAllowed {
		r.log.WarnContext(ctx, "Cluster Service is of a release that cannot say what it holds: nothing was compared")
		err = nil
	}
	if err == nil && m.failures > 0 {
		err = fmt.Errorf("%d of what differs could not be dealt with, as %w", m.failures, m.failure)
	}
	m.result.Desired, m.result.Fleet = counts.Desired, counts.Fleet
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	r.comparisons.WithLabelValues(outcome).Inc()
	if err == nil && !m.result.empty() {
		r.log.WarnContext(ctx, "compared Cosmos DB with Cluster Service", "promised", counts.Desired, "held", counts.Fleet, "applied", m.result.Applied,
			"deleted", m.result.Deleted, "concerns", m.result.Findings, "took", time.Since(started).Round(time.Millisecond).String())
	}
	return m.result, err
}

// maxClusterDrifts bounds what of one cluster is held at a time.
const maxClusterDrifts = 500

func (r *Reconciler) setFindings(result Result) {
	for _, concern := range findingTypes {
		r.findings.WithLabelValues(string(concern)).Set(float64(result.Findings[concern]))
	}
}
