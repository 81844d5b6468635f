package delivery

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

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
	stuckLimit    = 100
	// Maestro is asked to delete a leftover firstLeftover after it was forced, then less often, down to every lastLeftover.
	firstLeftover = 10 * time.Second
	lastLeftover  = 10 * time.Minute
	leftoverLimit = 50
)

// Overseer finds steps of deletions that exceed their limit, with an index on the time of the limit, and repeats the deletion of
// leftovers. Neither has a cost for a deletion that proceeds in time.
type Overseer struct {
	Store   *store.Store
	Region  fleet.Region
	Maestro Subscriber
	Metrics *Metrics
	// Interval is the maximum interval between two checks; 0 means 15 seconds.
	Interval time.Duration
	Log      *slog.Logger

	woken chan struct{}
	// limitsChanged is set when the limits of steps changed and the open deletions have yet to be settled with them.
	limitsChanged atomic.Bool
}

// NewOverseer sets the defaults of an overseer. Run makes it work.
func NewOverseer(o *Overseer) *Overseer {
	if o.Interval == 0 {
		o.Interval = stuckInterval
	}
	o.woken = make(chan struct{}, 1)
	return o
}

// Wake starts a check soon. It does not block.
func (o *Overseer) Wake() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// LimitsChanged makes all open deletions follow changed limits of their steps soon. It does not block.
func (o *Overseer) LimitsChanged() {
	o.limitsChanged.Store(true)
	o.Wake()
}

// settleOpen settles all open deletions, so that the times at which their steps become stuck follow the current limits.
func (o *Overseer) settleOpen(ctx context.Context) error {
	for after := ""; ; {
		uids, err := o.Store.OpenDeletions(ctx, after, stuckLimit)
		if err == nil {
			err = each(ctx, uids, func(uid string) error { return o.settle(ctx, uid) })
		}
		if err != nil || len(uids) < stuckLimit {
			return err
		}
		after = uids[len(uids)-1]
	}
}

func (o *Overseer) settle(ctx context.Context, uid string) error {
	return o.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		return o.Region.Settle(o.Store.Now(), tx.Aggregates[uid], nil)
	})
}

// Run checks deletions until ctx ends.
func (o *Overseer) Run(ctx context.Context) {
	for {
		wait, err := o.check(ctx)
		if err != nil && ctx.Err() == nil {
			o.Log.Warn("checking deletions failed", logkey.Error, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-o.woken:
		case <-time.After(wait):
		}
	}
}

// check settles clusters whose deletion became stuck, repeats the deletion of leftovers, and updates the metrics. It returns the
// time until the next check.
func (o *Overseer) check(ctx context.Context) (time.Duration, error) {
	if o.limitsChanged.Swap(false) {
		if err := o.settleOpen(ctx); err != nil {
			o.limitsChanged.Store(true)
			return o.Interval, err
		}
	}
	uids, next, err := o.Store.DeletionsDue(ctx, stuckLimit)
	if err != nil {
		return o.Interval, err
	}
	failed := each(ctx, uids, func(uid string) error {
		if err := o.settle(ctx, uid); err != nil {
			return err
		}
		o.Log.Warn("step of a deletion is stuck", logkey.ClusterUID, uid)
		return nil
	})
	if err := o.deleteLeftovers(ctx); err != nil {
		return o.Interval, err
	}
	steps, leftovers, err := o.Store.StuckSteps(ctx)
	if err != nil {
		return o.Interval, err
	}
	for _, kind := range deletiongraph.Kinds() {
		o.Metrics.stuck.WithLabelValues(kind).Set(float64(steps[kind]))
	}
	o.Metrics.leftovers.Set(float64(leftovers))
	return untilNext(o.Store.Now(), next, o.Interval, len(uids) == stuckLimit, failed), failed
}

// deleteLeftovers asks Maestro to delete the leftovers that are due. A failed request is repeated like an unanswered one.
func (o *Overseer) deleteLeftovers(ctx context.Context) error {
	due, err := o.Store.AcquireDueLeftovers(ctx, leftoverLimit, firstLeftover, lastLeftover)
	if err != nil {
		return err
	}
	for _, l := range due {
		bundle := &maestro.Bundle{ID: l.WorkID, Name: l.Work, Consumer: l.Shard, ReleaseFinalizers: l.ReleaseFinalizers}
		if err := o.Maestro.Delete(ctx, bundle); err != nil && ctx.Err() == nil {
			o.Log.Warn("deleting a leftover failed; it will be repeated", logkey.ClusterUID, l.ClusterUID, logkey.Work, l.Work, logkey.BundleID, l.WorkID, logkey.Error, err)
		}
	}
	return nil
}
