package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

const (
	renewPage = 100
	// renewPatience is how long one cluster is waited for before the next takes its turn.
	renewPatience = 2 * time.Minute
	renewPoll     = 250 * time.Millisecond
	renewRetry    = 5 * time.Second
	// renewAgain is when all clusters are gone through once more after the start: a replica of the release before, which went
	// away meanwhile, may have rendered one in its way.
	renewAgain = 10 * time.Minute
	// renewRefusals is how many clusters may be refused by their management clusters, if those are the most, before a
	// renewal stops.
	renewRefusals = 3
)

// RenewerOptions are what a renewer works with.
type RenewerOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Metrics  *Metrics
	// AtOnce is how many clusters a new rendering is on its way to at a time.
	AtOnce int
}

// Renewer brings a new rendering to clusters that nobody changes: of a new release of this service, of another
// configuration, of another pull secret. It goes through all of them when it starts and when it is told of a change, and does
// nothing in between. Which cluster is outdated follows from its works' digests, so a renewal that was cut short is gone on
// with by the next. Generations stay as they are: for the customer nothing happens.
type Renewer struct {
	RenewerOptions
	changed chan struct{}
}

// NewRenewer makes a renewer; Run runs it.
func NewRenewer(o RenewerOptions) *Renewer {
	return &Renewer{RenewerOptions: o, changed: make(chan struct{}, 1)}
}

// Changed tells it that the renderer renders differently now. It does not block.
func (r *Renewer) Changed() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run renews until ctx is over.
func (r *Renewer) Run(ctx context.Context) {
	again := time.NewTimer(renewAgain)
	defer again.Stop()
	for {
		if err := r.renewAll(ctx); err != nil {
			if ctx.Err() == nil {
				slog.Warn("going through the clusters for a new rendering failed and is tried again", "error", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-r.changed:
			case <-time.After(renewRetry):
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-again.C:
		}
	}
}

// renewal is one time through all clusters.
type renewal struct {
	*Renewer

	mu                         sync.Mutex
	carried, refused, rendered int
	// silent are the management clusters that one was waited for in vain on; their others are not waited for.
	silent map[string]bool
}

func (r *Renewer) renewAll(ctx context.Context) error {
	walk := &renewal{Renewer: r, silent: map[string]bool{}}
	slots := make(chan struct{}, max(r.AtOnce, 1))
	var group sync.WaitGroup
	defer group.Wait()
	began, after := time.Now(), ""
	for {
		page, err := r.Store.PlacedClusters(ctx, after, renewPage)
		if err != nil {
			return err
		}
		for _, uid := range page {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case slots <- struct{}{}:
			}
			if stopped, refused := walk.stopped(); stopped {
				slog.Error("a new rendering is refused by the management clusters; it is not brought to more clusters until it changes", "refused", refused)
				r.Metrics.renewals.WithLabelValues("stopped").Inc()
				return nil
			}
			group.Go(func() {
				defer func() { <-slots }()
				walk.renew(ctx, uid)
			})
			after = uid
		}
		if len(page) < renewPage {
			break
		}
	}
	group.Wait()
	if walk.rendered > 0 {
		slog.Info("brought a new rendering to clusters", "clusters", walk.rendered, "carried", walk.carried, "refused", walk.refused,
			"took", time.Since(began).Round(time.Millisecond).String())
	}
	return ctx.Err()
}

func (w *renewal) stopped() (stopped bool, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused >= renewRefusals && w.refused > w.carried, w.refused
}

// renew renders one cluster anew if that is called for, and waits for its management cluster.
func (w *renewal) renew(ctx context.Context, uid string) {
	before, err := w.Store.Read(ctx, uid)
	if err == nil {
		var outdated bool
		if outdated, err = fleet.Outdated(before, w.Renderer); err == nil && !outdated {
			return
		}
	}
	if err == nil {
		err = w.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
			return w.Renderer.Region.Settle(w.Store.Now(), tx.Aggregates[uid], w.Renderer)
		})
	}
	if err != nil {
		if ctx.Err() == nil {
			w.Metrics.renewals.WithLabelValues("failed").Inc()
			slog.Warn("a cluster could not be rendered anew", "cluster_uid", uid, "error", err)
		}
		return
	}
	shard := before.Cluster.Shard
	w.mu.Lock()
	w.rendered++
	silent := w.silent[shard]
	w.mu.Unlock()
	outcome := "published"
	if !silent {
		outcome = w.await(ctx, uid, fleet.Applied(before))
	}
	w.Metrics.renewals.WithLabelValues(outcome).Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch outcome {
	case "carried":
		w.carried++
	case "refused":
		w.refused++
	case "late":
		w.silent[shard] = true
	}
}

// await says what became of a cluster's new rendering: carried, refused, late, or gone with the cluster. One that was not
// carried before is not held against the rendering.
func (w *renewal) await(ctx context.Context, uid string, healthy bool) string {
	deadline := time.NewTimer(renewPatience)
	defer deadline.Stop()
	ticker := time.NewTicker(renewPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return "published"
		case <-deadline.C:
			return "late"
		case <-ticker.C:
		}
		t, err := w.Store.Read(ctx, uid)
		switch {
		case err != nil:
		case t.Cluster == nil || t.Cluster.Deleting():
			return "gone"
		case fleet.Applied(t):
			return "carried"
		case fleet.ApplyFailed(t) && healthy:
			return "refused"
		case fleet.ApplyFailed(t):
			return "published"
		}
	}
}
