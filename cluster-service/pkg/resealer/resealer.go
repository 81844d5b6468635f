// Package resealer seals the signing keys of clusters again after the primary key of the sealing keyset has changed, so that the former
// key can be removed.
package resealer

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

const (
	pageSize   = 500
	retryPause = 5 * time.Second
	// secondPass is the time after which a pass is repeated once: meanwhile another replica can have sealed with the former key, because
	// its file was replaced later.
	secondPass = 10 * time.Minute
	// idle is the pause when there is nothing to do. A changed keyset ends it.
	idle = 24 * time.Hour
)

// Resealer makes a pass over the signing keys of all clusters when it starts and after Changed. A value names the key that sealed it, so
// the next pass continues an interrupted one, and several replicas can make a pass at the same time.
type Resealer struct {
	store   *store.Store
	keeper  *seal.Keys
	log     *slog.Logger
	changed pass.Signal
	pending prometheus.Gauge
	sealed  prometheus.Counter
	// confirmed is the primary key after whose first pass the second one is due or done.
	confirmed uint32
}

// New returns a Resealer and registers its metrics. Run makes it work.
func New(s *store.Store, keeper *seal.Keys, metrics prometheus.Registerer, log *slog.Logger) *Resealer {
	r := &Resealer{store: s, keeper: keeper, log: log, changed: pass.NewSignal(),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_signing_keys_to_reseal",
			Help: "Signing keys of clusters that a former sealing key sealed, as of the last pass of this replica; -1 before its first pass."}),
		sealed: prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_signing_keys_resealed_total",
			Help: "Signing keys of clusters that this replica sealed with the primary key."})}
	r.pending.Set(-1)
	metrics.MustRegister(r.pending, r.sealed)
	return r
}

// Changed starts a pass because the keyset changed. It does not block.
func (r *Resealer) Changed() { r.changed.Set() }

// Run seals until ctx ends.
func (r *Resealer) Run(ctx context.Context) {
	pass.Repeat(ctx, r.changed, r.pass)
}

// pass seals what the primary key did not seal, and returns the pause until the next pass.
func (r *Resealer) pass(ctx context.Context) time.Duration {
	primary := r.keeper.Primary()
	outdated, err := r.scan(ctx, func([]byte, string) error { return nil })
	if err == nil && outdated > 0 {
		r.pending.Set(float64(outdated))
		r.log.Info("sealing signing keys with the primary key", logkey.Count, outdated, logkey.KeyID, primary)
		_, err = r.scan(ctx, func(_ []byte, uid string) error { return r.seal(ctx, uid) })
	}
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("sealing signing keys with the primary key failed; it will be retried", logkey.Error, err)
		}
		return retryPause
	}
	r.pending.Set(0)
	if outdated > 0 {
		r.log.Info("all signing keys are sealed with the primary key", logkey.KeyID, primary)
	}
	if r.confirmed != primary {
		r.confirmed = primary
		return secondPass
	}
	return idle
}

// scan calls f for each signing key that the primary key did not seal, page by page, and returns their number. It goes on after an error
// of f, and returns the last one in the end.
func (r *Resealer) scan(ctx context.Context, f func(sealed []byte, uid string) error) (outdated int, failure error) {
	for after := ""; ; {
		keys, last, err := r.store.SigningKeys(ctx, after, pageSize)
		if err != nil {
			return outdated, err
		}
		for uid, sealed := range keys {
			if seal.KeyOf(sealed) == r.keeper.Primary() {
				continue
			}
			outdated++
			if err := f(sealed, uid); err != nil {
				failure = err
			}
			if ctx.Err() != nil {
				return outdated, ctx.Err()
			}
		}
		if last == "" {
			return outdated, failure
		}
		after = last
	}
}

// seal seals the signing key of one cluster. A key that cannot be opened is kept as it is.
func (r *Resealer) seal(ctx context.Context, uid string) error {
	resealed := false
	err := r.store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		resealed = false
		c := tx.Aggregates[uid].Cluster
		if c == nil || c.SigningKey == nil || seal.KeyOf(c.SigningKey) == r.keeper.Primary() {
			return nil
		}
		key, err := r.keeper.Open(uid, c.SigningKey)
		if err != nil {
			return fmt.Errorf("the signing key, sealed with the key %d: %w", seal.KeyOf(c.SigningKey), err)
		}
		c.SigningKey, resealed = r.keeper.Seal(uid, key), true
		return nil
	})
	if err != nil {
		return fmt.Errorf("sealing the signing key of the cluster %s again: %w", uid, err)
	}
	if resealed {
		r.sealed.Inc()
	}
	r.pending.Dec()
	return nil
}
