package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// awaitedInterval is the interval at which lost control planes and refused works are counted, and so the maximum age of the counts.
const awaitedInterval = 10 * time.Second

// AwaitedActions counts what only a person can change: the clusters whose control plane is lost, and the works that are permanently
// refused. The counts have no cost for other clusters.
type AwaitedActions struct {
	Store   *store.Store
	Metrics *Metrics
	// Interval is the interval between two counts; 0 means 10 seconds.
	Interval time.Duration
	Log      *slog.Logger
}

// Run counts until ctx ends.
func (l *AwaitedActions) Run(ctx context.Context) {
	interval := l.Interval
	if interval == 0 {
		interval = awaitedInterval
	}
	pass.Repeat(ctx, pass.NewSignal(), func(ctx context.Context) time.Duration {
		count, err := l.Store.LostControlPlanes(ctx)
		switch {
		case err == nil:
			l.Metrics.lost.Set(float64(count))
		case ctx.Err() == nil:
			l.Log.Warn("counting lost control planes failed", logkey.Error, err)
		}
		refused, err := l.Store.PermanentlyRefusedWorks(ctx)
		switch {
		case err == nil:
			l.Metrics.refused.Set(float64(refused))
		case ctx.Err() == nil:
			l.Log.Warn("counting refused works failed", logkey.Error, err)
		}
		return interval
	})
}
