package delivery

import (
	"context"
	"log/slog"
	"time"

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

// Placer places clusters that found no room when they were created, oldest first, when room becomes free.
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
	uids, err := p.Store.Unplaced(ctx, placeLimit)
	if err != nil {
		return err
	}
	for _, uid := range uids {
		room := true
		result, err := p.Store.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) (err error) {
			t := tx.Tenancies[uid]
			if t.Cluster == nil || t.Cluster.Shard != "" || t.Cluster.Deleting() {
				return nil
			}
			if t.Cluster.Shard, err = tx.Place(ctx); err != nil {
				return err
			}
			if room = t.Cluster.Shard != ""; !room {
				return nil
			}
			return p.Renderer.Region.Settle(p.Store.Now(), t, p.Renderer)
		})
		if err != nil {
			return err
		}
		if !room {
			return nil
		}
		p.Publish(result.Due)
	}
	return nil
}
