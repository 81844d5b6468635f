package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// expireInterval is the maximum interval between two passes. A credential that is issued in between cannot expire before the
	// next pass, because the shortest lifetime is ten times as long.
	expireInterval = time.Minute
	expireLimit    = 100
)

// Expirer marks issued credentials as expired.
type Expirer struct {
	Store    *store.Store
	Renderer *render.Renderer
	Log      *slog.Logger
}

// Run marks credentials as expired until ctx ends.
func (e *Expirer) Run(ctx context.Context) {
	for {
		wait, err := e.expire(ctx)
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("marking credentials as expired failed", logkey.Error, err)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// expire settles the clusters with expired credentials, and returns the time until the next pass.
func (e *Expirer) expire(ctx context.Context) (time.Duration, error) {
	uids, next, err := e.Store.ExpiredCredentials(ctx, expireLimit)
	if err != nil {
		return expireInterval, err
	}
	err = each(ctx, uids, func(uid string) error {
		return e.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
			return e.Renderer.Region.SettleObserved(e.Store.Now(), tx.Aggregates[uid], e.Renderer)
		})
	})
	return untilNext(e.Store.Now(), next, expireInterval, len(uids) == expireLimit, err), err
}
