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
)

const (
	// stuckInterval is how often the database is asked for deletions whose time has come when none comes sooner, and how old
	// the counts of stuck steps are at most.
	stuckInterval = 15 * time.Second
	stuckLimit    = 100
	// A leftover is asked to go soon after it was forced, and every lastLeftover in the end.
	firstLeftover = 10 * time.Second
	lastLeftover  = 10 * time.Minute
	leftoverLimit = 50
)

// Overseer finds the steps of deletions that run longer than they should, by an index of when that is, and goes on to ask
// for what was forced to go. Neither costs anything for a deletion that is on its way.
type Overseer struct {
	Store   *store.Store
	Region  fleet.Region
	Maestro Subscriber
	Metrics *Metrics
	// Interval is the longest time between two looks; 0 means 15 seconds.
	Interval time.Duration

	woken chan struct{}
	// limitsChanged is set when the limits of steps changed and the open deletions have yet to be settled with them.
	limitsChanged atomic.Bool
}

// NewOverseer completes an overseer; Run runs it.
func NewOverseer(o *Overseer) *Overseer {
	if o.Interval == 0 {
		o.Interval = stuckInterval
	}
	o.woken = make(chan struct{}, 1)
	return o
}

// Wake starts a look soon. It does not block.
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

// Run oversees until ctx is over.
func (o *Overseer) Run(ctx context.Context) {
	for {
		wait, err := o.look(ctx)
		if err != nil && ctx.Err() == nil {
			slog.Warn("looking after deletions failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-o.woken:
		case <-time.After(wait):
		}
	}
}

// look settles what has become stuck, asks for leftovers, and counts. It returns how long there is nothing to do.
func (o *Overseer) look(ctx context.Context) (time.Duration, error) {
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
		slog.Warn("a step of a deletion is stuck", "cluster_uid", uid)
		return nil
	})
	if err := o.askLeftovers(ctx); err != nil {
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

// askLeftovers asks Maestro for the deletion of what was forced and is due. A failure is tried again like no answer.
func (o *Overseer) askLeftovers(ctx context.Context) error {
	due, err := o.Store.AcquireDueLeftovers(ctx, leftoverLimit, firstLeftover, lastLeftover)
	if err != nil {
		return err
	}
	for _, l := range due {
		bundle := &maestro.Bundle{ID: l.WorkID, Name: l.Work, Consumer: l.Shard, ReleaseFinalizers: l.ReleaseFinalizers}
		if err := o.Maestro.Delete(ctx, bundle); err != nil && ctx.Err() == nil {
			slog.Warn("a leftover of a deletion could not be asked to go; it will be asked again", "cluster_uid", l.ClusterUID, "work", l.Work, "maestro_id", l.WorkID, "error", err)
		}
	}
	return nil
}
