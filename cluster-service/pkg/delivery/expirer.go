package delivery

import (
	"context"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

const (
	// expireInterval is how often issued credentials are looked at when none ends sooner. None that is issued meanwhile can:
	// the shortest lifetime is ten times as long.
	expireInterval = time.Minute
	expireLimit    = 100
)

// Expirer says of issued credentials that they have expired when their time has come.
type Expirer struct {
	Store    *store.Store
	Renderer *render.Renderer
}

// Run expires until ctx is over.
func (e *Expirer) Run(ctx context.Context) {
	for {
		wait, err := e.expire(ctx)
		if err != nil && ctx.Err() == nil {
			slog.Warn("expiring credentials failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// expire settles the clusters whose credentials have ended, and returns how long there is nothing to do.
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
