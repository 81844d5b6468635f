package pass

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

const (
	keysPerPage = 500
	// DefaultResealAgain is the default of the pause before the second pass.
	DefaultResealAgain = 10 * time.Minute
	// idle is the pause when there is nothing to do. A changed keyset ends it.
	idle = 24 * time.Hour
)

// Resealer makes a pass over the signing keys of all clusters when it starts and after Changed. A value names the key that sealed it, so
// the next pass continues an interrupted one, and several replicas can make a pass at the same time.
type Resealer struct {
	store   *store.Store
	keeper  *seal.Keys
	log     *slog.Logger
	changed Signal
	again   time.Duration
	total   prometheus.Gauge
	pending prometheus.Gauge
	sealed  prometheus.Counter
	passes  *prometheus.GaugeVec
	// confirmed is the primary key of the last complete pass, and firstPass the end of the first one with this key. second is true after
	// the second one.
	confirmed uint32
	firstPass time.Time
	second    bool
}

// NewResealer returns a Resealer and registers its metrics. Run makes it work. A pass is repeated once after the pause again: until then another
// replica can have sealed with the former key, because its file was replaced later, or a transaction can have been open.
func NewResealer(s *store.Store, keeper *seal.Keys, again time.Duration, metrics prometheus.Registerer, log *slog.Logger) *Resealer {
	r := &Resealer{store: s, keeper: keeper, log: log, changed: NewSignal(), again: again,
		total: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_signing_keys",
			Help: "Signing keys of clusters, as of the last pass of this replica over them."}),
		passes: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_reseal_passes",
			Help: "Passes over the signing keys of all clusters after which none was left that another key had sealed, by the ID of the primary key; at most 2, which are --reseal-again-after apart."}, []string{"key"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_signing_keys_to_reseal",
			Help: "Signing keys of clusters that a former sealing key sealed, as of the last pass of this replica; -1 before its first pass."}),
		sealed: prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_signing_keys_resealed_total",
			Help: "Signing keys of clusters that this replica sealed with the primary key."})}
	r.pending.Set(-1)
	metrics.MustRegister(r.total, r.pending, r.sealed, r.passes)
	return r
}

// Changed starts a pass because the keyset changed. It does not block.
func (r *Resealer) Changed() { r.changed.Set() }

// Run seals until ctx ends.
func (r *Resealer) Run(ctx context.Context) {
	Repeat(ctx, r.changed, r.pass)
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
	return r.confirm(primary, time.Now())
}

// confirm notes that a complete pass with a primary key ended, and returns the pause until the next pass.
func (r *Resealer) confirm(primary uint32, now time.Time) time.Duration {
	switch {
	case r.keeper.Primary() != primary:
		return 0 // it changed during the pass
	case r.confirmed != primary:
		r.confirmed, r.firstPass, r.second = primary, now, false
	case now.Sub(r.firstPass) >= r.again:
		r.second = true
	}
	passes, pause := 1.0, max(0, r.firstPass.Add(r.again).Sub(now))
	if r.second {
		passes, pause = 2, idle
	}
	r.passes.Reset()
	r.passes.WithLabelValues(strconv.FormatUint(uint64(primary), 10)).Set(passes)
	return pause
}

// scan calls f for each signing key that the primary key did not seal, page by page, and returns their number. It goes on after an error
// of f, and returns the last one in the end.
func (r *Resealer) scan(ctx context.Context, f func(sealed []byte, uid string) error) (outdated int, failure error) {
	total := 0
	for after := ""; ; {
		keys, last, err := r.store.SigningKeys(ctx, after, keysPerPage)
		if err != nil {
			return outdated, err
		}
		total += len(keys)
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
			r.total.Set(float64(total))
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
