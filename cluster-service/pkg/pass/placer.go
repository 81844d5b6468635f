package pass

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const placeInterval = 30 * time.Second

// PlacerOptions configure a Placer.
type PlacerOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	// Interval is the longest time between two attempts; 0 means 30 seconds.
	Interval time.Duration
	Log      *slog.Logger
}

// Placer places the clusters that no provision shard accepted when they were created, oldest first. It tries again after
// Wake and periodically.
type Placer struct {
	PlacerOptions
	woken Signal
}

// NewPlacer returns a placer. Run makes it work.
func NewPlacer(o PlacerOptions) *Placer {
	if o.Interval == 0 {
		o.Interval = placeInterval
	}
	return &Placer{PlacerOptions: o, woken: NewSignal()}
}

// Wake starts an attempt soon. It does not block.
func (p *Placer) Wake() { p.woken.Set() }

// Run places clusters until ctx ends.
func (p *Placer) Run(ctx context.Context) {
	Repeat(ctx, p.woken, func(ctx context.Context) time.Duration {
		if err := p.place(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("placing clusters failed", logkey.Error, err)
		}
		return p.Interval
	})
}

func (p *Placer) place(ctx context.Context) error {
	// Needs without a place are not tried again in the same pass for clusters without rules of their own.
	unplaceable := map[placement.Needs]bool{}
	var last *fleet.Cluster
	var failed error
	for {
		page, err := p.Store.ListUnplaced(ctx, last, pageSize)
		if err != nil {
			return errors.Join(failed, err)
		}
		var uids []string
		for _, c := range page {
			uids = append(uids, c.UID)
		}
		err = EachCluster(ctx, uids, func(uid string) error { return p.placeOne(ctx, uid, unplaceable) })
		failed = errors.Join(failed, err)
		if len(page) < pageSize || ctx.Err() != nil || store.IsUnavailable(err) {
			return failed
		}
		last = page[len(page)-1]
	}
}

// placeOne decides the placement of one cluster.
func (p *Placer) placeOne(ctx context.Context, uid string, unplaceable map[placement.Needs]bool) error {
	e, err := p.Store.Placement(ctx, uid)
	if errors.Is(err, store.ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.Override == nil && unplaceable[e.Aggregate.PlacementNeeds()] {
		return nil
	}
	return p.Store.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) error {
		t := tx.Aggregates[uid]
		if t.Cluster == nil || t.Cluster.Shard != "" || t.Cluster.Deleting() {
			return nil
		}
		decision, err := tx.Place(ctx, t.Cluster, t.PlacementNeeds(), p.Renderer.Placement())
		if err != nil {
			return err
		}
		if decision.Shard == "" {
			unplaceable[t.PlacementNeeds()] = unplaceable[t.PlacementNeeds()] || e.Override == nil
		}
		return p.Renderer.Region.Settle(p.Store.Now(), t, p.Renderer)
	})
}
