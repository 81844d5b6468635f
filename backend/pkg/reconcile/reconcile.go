// Package reconcile repairs drift: it makes the fleet hold the desired state after Cluster Service's database or Cosmos
// DB was restored to an earlier state. It compares the two with package reconciliation after Cluster Service's
// revisions restarted, when an SRE requests it, and at long intervals. State or deletions that Cluster Service had
// accepted and lost are sent again. Drift for which the customer's intent is unknown is left as it is and counted as a
// finding.
//
// It stores nothing. A comparison that a crash interrupts is repeated, because the compared groups have no handled
// revision until it is done: their next owner lists the fleet and requests the comparison again.
package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// Options configure a Reconciler. A zero value means the default.
type Options struct {
	// Interval is the time between comparisons without a request; 0 means a day, a negative value disables them.
	Interval time.Duration
	// ReportOnly disables repairs until an SRE requests them. It is for the time after Cosmos DB was restored to an
	// earlier state.
	ReportOnly bool
	// Workers is how many clusters are repaired at a time; 0 means 8.
	Workers int
	// FindingsInterval is the time between comparisons while there are findings, so that resolved findings disappear; 0
	// means 10 minutes.
	FindingsInterval time.Duration
	// MinBackoff and MaxBackoff bound the pauses after a failed comparison; 0 means 1 s and 1 min.
	MinBackoff, MaxBackoff time.Duration
	// PageSize is how many resources of each side are read at a time; 0 means 500.
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

// Reconciler compares and repairs the groups of this replica.
type Reconciler struct {
	db           *database.DB
	rpc          clusterservicev1.ClusterServiceClient
	lifecycles   *lifecycle.Controller
	owns         func(controller.Group) bool
	options      Options
	log          *slog.Logger
	findings     *prometheus.GaugeVec
	comparisons  *prometheus.CounterVec
	pendingGauge prometheus.Gauge

	requested chan struct{}
	mu        sync.Mutex
	// pending maps the groups that wait for a comparison to the number of the newest request.
	pending     map[controller.Group]int
	lastRequest int
}

// New returns a Reconciler.
func New(db *database.DB, rpc clusterservicev1.ClusterServiceClient, lifecycles *lifecycle.Controller, owns func(controller.Group) bool, options Options, metrics prometheus.Registerer, log *slog.Logger) *Reconciler {
	r := &Reconciler{
		db: db, rpc: rpc, lifecycles: lifecycles, owns: owns, options: options.complete(), log: log,
		requested: make(chan struct{}, 1), pending: map[controller.Group]int{},
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

// RequestComparison requests a comparison of groups for which the fleet may have lost state.
func (r *Reconciler) RequestComparison(groups []controller.Group) {
	r.mu.Lock()
	r.lastRequest++
	for _, g := range groups {
		r.pending[g] = r.lastRequest
	}
	r.pendingGauge.Set(float64(len(r.pending)))
	r.mu.Unlock()
	r.wake()
}

// wake makes Run compare the groups of this replica, unless it will do so anyway.
func (r *Reconciler) wake() {
	select {
	case r.requested <- struct{}{}:
	default:
	}
}

// ComparisonPending reports whether a group waits for a comparison.
func (r *Reconciler) ComparisonPending(group controller.Group) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[group] > 0
}

// GroupLost removes a group. Its next owner requests the comparison again.
func (r *Reconciler) GroupLost(group controller.Group) {
	r.mu.Lock()
	delete(r.pending, group)
	r.pendingGauge.Set(float64(len(r.pending)))
	r.mu.Unlock()
}

// Run compares until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	pauses := backoff.New(r.options.MinBackoff, r.options.MaxBackoff)
	timer := time.NewTimer(r.untilNext())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.requested:
		case <-timer.C:
		}
		requests := r.pendingRequests()
		result, err := r.run(ctx, r.owns, !r.options.ReportOnly)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			r.setFindings(result)
			r.clearPending(requests)
			pauses.Reset()
			wait := r.untilNext()
			if len(result.Findings) > 0 {
				wait = min(wait, backoff.Jitter(r.options.FindingsInterval))
			}
			timer.Reset(wait)
			continue
		}
		r.log.WarnContext(ctx, "comparing Cosmos DB with Cluster Service failed; retrying", logkey.Error, err)
		timer.Reset(pauses.Next())
	}
}

// untilNext returns the time until the next comparison without a request. It differs between replicas.
func (r *Reconciler) untilNext() time.Duration {
	if r.options.Interval < 0 {
		return 1<<63 - 1
	}
	return backoff.Jitter(r.options.Interval)
}

func (r *Reconciler) pendingRequests() map[controller.Group]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests := make(map[controller.Group]int, len(r.pending))
	for g, number := range r.pending {
		requests[g] = number
	}
	return requests
}

// clearPending removes the requests that a comparison has served, but not later ones.
func (r *Reconciler) clearPending(requests map[controller.Group]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for g, number := range requests {
		if r.pending[g] == number {
			delete(r.pending, g)
		}
	}
	r.pendingGauge.Set(float64(len(r.pending)))
}

// ReconcileAll compares and repairs all groups, including those of other replicas. SREs request it. It is safe if other
// replicas do the same at the same time. Afterwards this replica compares its own groups again, so that the metric of
// findings has what the SRE has resolved or found.
func (r *Reconciler) ReconcileAll(ctx context.Context) (Result, error) {
	result, err := r.run(ctx, func(controller.Group) bool { return true }, true)
	if err == nil {
		r.wake()
	}
	return result, err
}

// run compares the subscriptions of some groups and repairs drift if enabled is set.
func (r *Reconciler) run(ctx context.Context, owns func(controller.Group) bool, enabled bool) (Result, error) {
	started := time.Now()
	m := &repair{r: r, enabled: enabled, work: make(chan []reconciliation.Drift, r.options.Workers), result: Result{Findings: map[Finding]int{}}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var workers sync.WaitGroup
	for range r.options.Workers {
		workers.Go(func() {
			for drifts := range m.work {
				m.repairCluster(ctx, drifts)
			}
		})
	}
	var drifts []reconciliation.Drift
	send := func() error {
		if len(drifts) == 0 {
			return nil
		}
		select {
		case m.work <- drifts:
			drifts = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	counts, err := reconciliation.Compare(ctx, r.db, reconciliation.FleetInventory{Client: r.rpc}, reconciliation.Options{
		Include: func(subscription string) bool { return owns(controller.GroupOf(subscription)) }, PageSize: r.options.PageSize,
	}, func(drift reconciliation.Drift) error {
		// One worker repairs the drift of one cluster, in order, because a node pool needs its cluster.
		if len(drifts) > 0 && (drifts[0].Cluster() != drift.Cluster() || len(drifts) == maxClusterDrifts) {
			if err := send(); err != nil {
				return err
			}
		}
		drifts = append(drifts, drift)
		return nil
	})
	if err == nil {
		err = send()
	}
	close(m.work)
	workers.Wait()
	if err != nil && apierror.KindOf(err) == apierror.MethodNotAllowed {
		r.log.WarnContext(ctx, "skipping the comparison: this release of Cluster Service has no inventory")
		err = nil
	}
	if err == nil && m.failures > 0 {
		err = fmt.Errorf("repairing %d resources failed, for example %w", m.failures, m.failure)
	}
	m.result.Desired, m.result.Fleet = counts.Desired, counts.Fleet
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	r.comparisons.WithLabelValues(outcome).Inc()
	if err == nil && !m.result.empty() {
		r.log.WarnContext(ctx, "found drift between Cosmos DB and Cluster Service", logkey.Desired, counts.Desired, logkey.InFleet, counts.Fleet, logkey.Applied, m.result.Applied,
			logkey.Deleted, m.result.Deleted, logkey.Findings, m.result.Findings, logkey.Duration, time.Since(started).Round(time.Millisecond).String())
	}
	return m.result, err
}

// maxClusterDrifts bounds the drift of one cluster that is kept in memory.
const maxClusterDrifts = 500

func (r *Reconciler) setFindings(result Result) {
	for _, concern := range findingTypes {
		r.findings.WithLabelValues(string(concern)).Set(float64(result.Findings[concern]))
	}
}
