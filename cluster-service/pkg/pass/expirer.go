package pass

import (
	"context"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// expireInterval is the maximum time between two passes. A credential that is issued in between cannot expire before the
// next pass, because the shortest lifetime is ten times as long.
const expireInterval = time.Minute

// Expirer ends credentials whose ExpireTime has passed.
type Expirer struct {
	Store    *store.Store
	Renderer *render.Renderer
	Log      *slog.Logger
}

// Run marks credentials as expired until ctx ends.
func (e *Expirer) Run(ctx context.Context) {
	Repeat(ctx, nil, func(ctx context.Context) time.Duration {
		pause, err := e.expire(ctx)
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("marking credentials as expired failed", logkey.Error, err)
		}
		return pause
	})
}

// expire settles the clusters with expired credentials, and returns the time until the next pass.
func (e *Expirer) expire(ctx context.Context) (time.Duration, error) {
	uids, next, err := e.Store.ExpiredCredentials(ctx, pageSize)
	if err != nil {
		return expireInterval, err
	}
	err = EachCluster(ctx, uids, func(uid string) error {
		return e.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
			return e.Renderer.Region.SettleObserved(e.Store.Now(), tx.Aggregates[uid], e.Renderer)
		})
	})
	return UntilNext(e.Store.Now(), next, expireInterval, len(uids) == pageSize, err), err
}
