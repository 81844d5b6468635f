package delivery

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

const (
	placeInterval = 30 * time.Second
	placeLimit    = 100
)

// PlacerOptions are what a placer works with.
type PlacerOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Publish  func(clusterUIDs []string)
}

// Placer places clusters that no shard could take when they were created, oldest first, when something changes for them.
type Placer struct {
	PlacerOptions
	freed chan struct{}
}

// NewPlacer makes a placer; Run runs it.
func NewPlacer(o PlacerOptions) *Placer {
	return &Placer{PlacerOptions: o, freed: make(chan struct{}, 1)}
}

// Freed has it look soon. It does not block.
func (p *Placer) Freed() {
	select {
	case p.freed <- struct{}{}:
	default:
	}
}

// Run places until ctx is over.
func (p *Placer) Run(ctx context.Context) {
	ticker := time.NewTicker(placeInterval)
	defer ticker.Stop()
	for {
		if err := p.place(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("placing clusters failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.freed:
		case <-ticker.C:
		}
	}
}

func (p *Placer) place(ctx context.Context) error {
	// Of those with the same needs and no rules of their own the first that finds no room stands for all.
	hopeless := map[placement.Needs]bool{}
	var last *fleet.Cluster
	var failed error
	for {
		page, err := p.Store.Unplaced(ctx, last, placeLimit)
		if err != nil {
			return errors.Join(failed, err)
		}
		var uids []string
		for _, c := range page {
			uids = append(uids, c.UID)
		}
		err = each(ctx, uids, func(uid string) error { return p.placeOne(ctx, uid, hopeless) })
		failed = errors.Join(failed, err)
		if len(page) < placeLimit || ctx.Err() != nil || store.IsUnavailable(err) {
			return failed
		}
		last = page[len(page)-1]
	}
}

// placeOne decides on one cluster.
func (p *Placer) placeOne(ctx context.Context, uid string, hopeless map[placement.Needs]bool) error {
	e, err := p.Store.Placement(ctx, uid)
	if errors.Is(err, store.ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.Override == nil && hopeless[e.Tenancy.Needs()] {
		return nil
	}
	result, err := p.Store.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) error {
		t := tx.Tenancies[uid]
		if t.Cluster == nil || t.Cluster.Shard != "" || t.Cluster.Deleting() {
			return nil
		}
		decision, err := tx.Place(ctx, t.Cluster, t.Needs(), p.Renderer.Placement())
		if err != nil {
			return err
		}
		if decision.Shard == "" {
			hopeless[t.Needs()] = hopeless[t.Needs()] || e.Override == nil
		}
		return p.Renderer.Region.Settle(p.Store.Now(), t, p.Renderer)
	})
	if err != nil {
		return err
	}
	p.Publish(result.Due)
	return nil
}
