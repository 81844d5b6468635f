package pass

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// stuckInterval is the maximum interval between queries for deletions with a step that became stuck, and so the maximum age
	// of the counts.
	stuckInterval = 15 * time.Second
	// Maestro is asked to delete a leftover firstLeftover after it was forced, then less often, down to every lastLeftover.
	firstLeftover = 10 * time.Second
	lastLeftover  = 10 * time.Minute
	leftoverLimit = 50
)

// Maestro has the method of a Maestro client that DeletionMonitor uses.
type Maestro interface {
	Delete(ctx context.Context, b *maestro.Bundle) error
}

// DeletionMonitorOptions configure a DeletionMonitor.
type DeletionMonitorOptions struct {
	Store   *store.Store
	Region  fleet.Region
	Maestro Maestro
	Metrics prometheus.Registerer
	// Interval is the maximum interval between two checks; 0 means 15 seconds.
	Interval time.Duration
	Log      *slog.Logger
}

// DeletionMonitor finds steps of deletions that exceed their limit, with an index on the time of the limit, and repeats the deletion of
// leftovers. Neither has a cost for a deletion that proceeds in time.
type DeletionMonitor struct {
	DeletionMonitorOptions
	woken Signal
	// limitsChanged is set when the limits of steps changed and the open deletions have yet to be settled with them.
	limitsChanged atomic.Bool

	stuck     *prometheus.GaugeVec
	leftovers prometheus.Gauge
}

// NewDeletionMonitor returns a monitor and registers its metrics. Run makes it work.
func NewDeletionMonitor(o DeletionMonitorOptions) *DeletionMonitor {
	if o.Interval == 0 {
		o.Interval = stuckInterval
	}
	m := &DeletionMonitor{DeletionMonitorOptions: o, woken: NewSignal(),
		stuck:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_deletion_step_stuck", Help: "Steps of deletions that exceed their limit, by kind of step. Every replica counts all of them."}, []string{"step"}),
		leftovers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_deletion_leftovers", Help: "Works of forced deletions without a confirmation of their deletion. Every replica counts all of them."}),
	}
	for _, kind := range deletiongraph.Kinds() {
		m.stuck.WithLabelValues(kind).Set(0)
	}
	o.Metrics.MustRegister(m.stuck, m.leftovers)
	return m
}

// Wake starts a check soon. It does not block.
func (m *DeletionMonitor) Wake() { m.woken.Set() }

// LimitsChanged makes all open deletions follow changed limits of their steps soon. It does not block.
func (m *DeletionMonitor) LimitsChanged() {
	m.limitsChanged.Store(true)
	m.Wake()
}

// settleOpen settles all open deletions, so that the times at which their steps become stuck follow the current limits.
func (m *DeletionMonitor) settleOpen(ctx context.Context) error {
	for after := ""; ; {
		uids, err := m.Store.OpenDeletions(ctx, after, pageSize)
		if err == nil {
			err = EachCluster(ctx, uids, func(uid string) error { return m.settle(ctx, uid) })
		}
		if err != nil || len(uids) < pageSize {
			return err
		}
		after = uids[len(uids)-1]
	}
}

func (m *DeletionMonitor) settle(ctx context.Context, uid string) error {
	return m.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		return m.Region.Settle(m.Store.Now(), tx.Aggregates[uid], nil)
	})
}

// Run checks deletions until ctx ends.
func (m *DeletionMonitor) Run(ctx context.Context) {
	Repeat(ctx, m.woken, func(ctx context.Context) time.Duration {
		pause, err := m.check(ctx)
		if err != nil && ctx.Err() == nil {
			m.Log.Warn("checking deletions failed", logkey.Error, err)
		}
		return pause
	})
}

// check settles clusters whose deletion became stuck, repeats the deletion of leftovers, and updates the metrics. It returns the
// time until the next check.
func (m *DeletionMonitor) check(ctx context.Context) (time.Duration, error) {
	if m.limitsChanged.Swap(false) {
		if err := m.settleOpen(ctx); err != nil {
			m.limitsChanged.Store(true)
			return m.Interval, err
		}
	}
	uids, next, err := m.Store.DeletionsDue(ctx, pageSize)
	if err != nil {
		return m.Interval, err
	}
	failed := EachCluster(ctx, uids, func(uid string) error {
		if err := m.settle(ctx, uid); err != nil {
			return err
		}
		m.Log.Warn("step of a deletion is stuck", logkey.ClusterUID, uid)
		return nil
	})
	if err := m.deleteLeftovers(ctx); err != nil {
		return m.Interval, err
	}
	steps, leftovers, err := m.Store.StuckSteps(ctx)
	if err != nil {
		return m.Interval, err
	}
	for _, kind := range deletiongraph.Kinds() {
		m.stuck.WithLabelValues(kind).Set(float64(steps[kind]))
	}
	m.leftovers.Set(float64(leftovers))
	return UntilNext(m.Store.Now(), next, m.Interval, len(uids) == pageSize, failed), failed
}

// deleteLeftovers asks Maestro to delete the leftovers that are due. A failed request is repeated like an unanswered one.
func (m *DeletionMonitor) deleteLeftovers(ctx context.Context) error {
	due, err := m.Store.AcquireDueLeftovers(ctx, leftoverLimit, firstLeftover, lastLeftover)
	if err != nil {
		return err
	}
	for _, l := range due {
		bundle := &maestro.Bundle{ID: l.WorkID, Name: l.Work, Consumer: l.Shard, ReleaseFinalizers: l.ReleaseFinalizers}
		if err := m.Maestro.Delete(ctx, bundle); err != nil && ctx.Err() == nil {
			m.Log.Warn("deleting a leftover failed; it will be repeated", logkey.ClusterUID, l.ClusterUID, logkey.Work, l.Work, logkey.BundleID, l.WorkID, logkey.Error, err)
		}
	}
	return nil
}
