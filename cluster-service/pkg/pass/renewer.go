package pass

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// clusterTimeout is the maximum time to wait for one cluster.
	clusterTimeout = 2 * time.Minute
	pollInterval   = 250 * time.Millisecond
	// secondPass is the time after the start of a second pass over all clusters: a replica of the previous release that has
	// ended meanwhile may have rendered a cluster with the previous settings. It is also the time after a pass that did not confirm
	// all shards.
	secondPass = 10 * time.Minute
	// maxRefusals is the number of refused clusters at which a renewal stops, unless more clusters accepted the rendering.
	maxRefusals = 3
)

// RenewerOptions configure a Renewer.
type RenewerOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Metrics  prometheus.Registerer
	// AtOnce is the number of clusters that are renewed at the same time.
	AtOnce int
	Log    *slog.Logger
}

// Renewer publishes a new rendering of clusters that nobody changes: after a new release of this service, another configuration
// or another pull secret. It makes a pass over all clusters when it starts and after Changed. The digests of a cluster's works
// show whether it is outdated, so the next pass continues an interrupted one. Generations do not change: customers see no
// operation.
type Renewer struct {
	RenewerOptions
	changed  Signal
	renewals *prometheus.CounterVec
	keys     *prometheus.GaugeVec
	// unconfirmed is true if the last pass did not confirm all shards.
	unconfirmed bool
}

// NewRenewer returns a renewer and registers its metric. Run makes it work.
func NewRenewer(o RenewerOptions) *Renewer {
	r := &Renewer{RenewerOptions: o, changed: NewSignal(), renewals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_renewals_total",
		Help: "Clusters that got a new rendering without a change of their own, by outcome; stopped counts renewals that were stopped."}, []string{"outcome"}),
		keys: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_shard_key_renewed",
			Help: "1 after a pass of this replica in which all clusters of the provision shard had works that this key sealed and that the agent applied, else 0, by shard and ID of the key."}, []string{"shard", "key"})}
	o.Metrics.MustRegister(r.renewals, r.keys)
	return r
}

// Changed starts a pass because the settings of the renderer changed. It does not block.
func (r *Renewer) Changed() { r.changed.Set() }

// Run renews clusters until ctx ends.
func (r *Renewer) Run(ctx context.Context) {
	again := time.NewTimer(secondPass)
	defer again.Stop()
	for {
		if err := r.renewAll(ctx); err != nil {
			if ctx.Err() == nil {
				r.Log.Warn("renewing clusters failed; it will be retried", logkey.Error, err)
			}
			select {
			case <-ctx.Done():
				return
			case <-r.changed:
			case <-time.After(retryPause):
			}
			continue
		}
		if r.unconfirmed {
			again.Reset(secondPass)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-again.C:
		}
	}
}

// renewal is one pass over all clusters.
type renewal struct {
	*Renewer

	mu                         sync.Mutex
	carried, refused, rendered int
	// unconfirmed are the shards with a cluster whose new works were not applied.
	unconfirmed map[string]bool
	// unread is true if the shard of a cluster could not be read.
	unread bool
	// silent are the shards on which a cluster exceeded clusterTimeout. Their other clusters are not waited for.
	silent map[string]bool
}

func (r *Renewer) renewAll(ctx context.Context) error {
	pass := &renewal{Renewer: r, silent: map[string]bool{}, unconfirmed: map[string]bool{}}
	keys := r.Renderer.ShardKeyIDs()
	slots := make(chan struct{}, max(r.AtOnce, 1))
	var group sync.WaitGroup
	defer group.Wait()
	began, after := time.Now(), ""
	for {
		page, err := r.Store.PlacedClusters(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for _, uid := range page {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case slots <- struct{}{}:
			}
			if stopped, refused := pass.stopped(); stopped {
				r.Log.Error("management clusters refuse the new rendering; no more clusters are renewed until the settings change", logkey.Count, refused)
				r.renewals.WithLabelValues("stopped").Inc()
				return nil
			}
			group.Go(func() {
				defer func() { <-slots }()
				pass.renew(ctx, uid)
			})
			after = uid
		}
		if len(page) < pageSize {
			break
		}
	}
	group.Wait()
	if ctx.Err() == nil {
		pass.noteKeys(keys)
	}
	if pass.rendered > 0 {
		r.Log.Info("clusters renewed", logkey.Count, pass.rendered, logkey.Confirmed, pass.carried, logkey.Refused, pass.refused,
			logkey.Duration, time.Since(began).Round(time.Millisecond).String())
	}
	return ctx.Err()
}

// noteKeys exports the keys of the shards at the begin of a complete pass in which all clusters of the shard were confirmed. A shard whose
// key changed during the pass keeps the key of the pass: the change starts another one.
func (w *renewal) noteKeys(keys map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Renewer.unconfirmed = w.unread || len(w.unconfirmed) > 0
	w.keys.Reset()
	for shard, key := range keys {
		if !w.unread && !w.unconfirmed[shard] {
			w.keys.WithLabelValues(shard, key).Set(1)
		}
	}
}

func (w *renewal) stopped() (stopped bool, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused >= maxRefusals && w.refused > w.carried, w.refused
}

// renew renders one cluster again if it is outdated, and waits until its management cluster has applied the works.
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
			w.renewals.WithLabelValues("failed").Inc()
			w.Log.Warn("renewing a cluster failed", logkey.ClusterUID, uid, logkey.Error, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if before == nil || before.Cluster == nil {
			w.unread = true
			return
		}
		w.unconfirmed[before.Cluster.Shard] = true
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
	w.renewals.WithLabelValues(outcome).Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	if outcome != "carried" && outcome != "gone" {
		w.unconfirmed[shard] = true
	}
	switch outcome {
	case "carried":
		w.carried++
	case "refused":
		w.refused++
	case "late":
		w.silent[shard] = true
	}
}

// await returns the outcome of a cluster's new rendering: carried, refused, late, or gone if the cluster is deleted. A cluster
// that did not carry its rendering before counts as published and not as refused.
func (w *renewal) await(ctx context.Context, uid string, healthy bool) string {
	deadline := time.NewTimer(clusterTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(pollInterval)
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
