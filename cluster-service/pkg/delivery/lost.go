package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// lostInterval is the interval at which lost control planes are counted, and so the maximum age of the count.
const lostInterval = 10 * time.Second

// LostControlPlanes counts the clusters whose control plane is lost. The count has no cost for other clusters.
type LostControlPlanes struct {
	Store   *store.Store
	Metrics *Metrics
	// Interval is the interval between two counts; 0 means 10 seconds.
	Interval time.Duration
	Log      *slog.Logger
}

// Run counts until ctx ends.
func (l *LostControlPlanes) Run(ctx context.Context) {
	interval := l.Interval
	if interval == 0 {
		interval = lostInterval
	}
	pass.Repeat(ctx, pass.NewSignal(), func(ctx context.Context) time.Duration {
		count, err := l.Store.LostControlPlanes(ctx)
		switch {
		case err == nil:
			l.Metrics.lost.Set(float64(count))
		case ctx.Err() == nil:
			l.Log.Warn("counting lost control planes failed", logkey.Error, err)
		}
		return interval
	})
}
