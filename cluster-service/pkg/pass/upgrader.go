package pass

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/upgradeplan"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

const (
	// policyInterval is the maximum interval between two checks of the policies: maintenance windows open, releases appear, and
	// upgrades of other replicas finish.
	policyInterval = 5 * time.Second
	// searchPause is the pause after a search over all clusters that found none, as a multiple of the search's duration.
	searchPause = 20
	policyPage  = 500
	dueLimit    = 100
)

// UpgraderOptions configure an Upgrader.
type UpgraderOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Catalog  func() *release.Catalog
	// Limit is the maximum number of running upgrades of all policies together; 0 means no limit.
	Limit   int
	Metrics prometheus.Registerer
	// Interval is the maximum interval between two checks of the policies; 0 means 5 seconds.
	Interval time.Duration
	Log      *slog.Logger
}

// Upgrader starts upgrades: those of policies whose window is open and whose limit allows another one, and those that were
// scheduled for a time. Several replicas may run one: each start is a transaction that counts the running upgrades.
type Upgrader struct {
	UpgraderOptions
	woken   Signal
	running atomic.Int64
	// queues are the found clusters whose upgrades have not started, by name of the policy.
	queues map[string]upgradeQueue
}

// upgradeQueue is the result of one search over all clusters for a policy.
type upgradeQueue struct {
	// of identifies the policies at the time of the search. Policies for single clusters exclude these clusters from others.
	of       string
	catalog  *release.Catalog
	clusters []string
	// none is true if the search found no cluster.
	none bool
	// found is the time of the search, revision the state that it saw, and took its duration.
	found    time.Time
	revision int64
	took     time.Duration
}

// NewUpgrader returns an upgrader and registers its metric. Run makes it work.
func NewUpgrader(o UpgraderOptions) *Upgrader {
	if o.Interval == 0 {
		o.Interval = policyInterval
	}
	u := &Upgrader{UpgraderOptions: o, woken: NewSignal(), queues: map[string]upgradeQueue{}}
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "policy_upgrades_running",
		Help: "Running upgrades of policies."}, func() float64 { return float64(u.running.Load()) }))
	return u
}

// Wake starts a check of policies and scheduled upgrades soon. It does not block.
func (u *Upgrader) Wake() { u.woken.Set() }

// Run starts upgrades until ctx ends.
func (u *Upgrader) Run(ctx context.Context) {
	Repeat(ctx, u.woken, func(ctx context.Context) time.Duration {
		pause := u.Interval
		next, err := u.startDue(ctx)
		if err == nil && !next.IsZero() {
			pause = max(0, min(pause, next.Sub(u.Store.Now())))
		}
		if !store.IsUnavailable(err) {
			err = errors.Join(err, u.followPolicies(ctx))
		}
		if err != nil && ctx.Err() == nil {
			u.Log.Warn("starting upgrades failed", logkey.Error, err)
		}
		return pause
	})
}

// startDue settles the clusters whose scheduled upgrades are due, and returns the time of the next one.
func (u *Upgrader) startDue(ctx context.Context) (next time.Time, err error) {
	clusters, next, err := u.Store.DueUpgrades(ctx, dueLimit)
	if err != nil {
		return next, err
	}
	err = EachCluster(ctx, clusters, func(uid string) error {
		err := u.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
			return u.Renderer.Region.SettleObserved(u.Store.Now(), tx.Aggregates[uid], u.Renderer)
		})
		if err != nil {
			return fmt.Errorf("start a scheduled upgrade: %w", err)
		}
		return nil
	})
	return next, err
}

func (u *Upgrader) followPolicies(ctx context.Context) error {
	policies, err := u.Store.UpgradePolicies(ctx)
	if err != nil {
		return err
	}
	_, all, err := u.Store.RunningUpgrades(ctx, "")
	if err != nil {
		return err
	}
	u.running.Store(int64(all))
	known := map[string]bool{}
	var failed []error
	for _, p := range policies {
		known[p.GetName()] = true
		if err := u.followPolicy(ctx, p, policies); err != nil {
			failed = append(failed, fmt.Errorf("upgrade policy %s: %w", p.GetName(), err))
		}
	}
	for name := range u.queues {
		if !known[name] {
			delete(u.queues, name)
		}
	}
	return errors.Join(failed...)
}

// followPolicy starts as many upgrades of a policy as its limit allows. A cluster that fails is left to the next search.
func (u *Upgrader) followPolicy(ctx context.Context, p *csv1.UpgradePolicy, all []*csv1.UpgradePolicy) error {
	windows, err := upgradeplan.ParseSchedule(p.GetSpec().GetSchedule())
	if err != nil {
		return err // cannot happen: the schedule was validated when it was stored
	}
	if open, _ := windows.Open(u.Store.Now()); !open || p.GetSpec().GetPaused() {
		delete(u.queues, p.GetName())
		return nil
	}
	q, err := u.candidates(ctx, p, all)
	if err != nil {
		return err
	}
	var failed []error
	for len(q.clusters) > 0 {
		uid := q.clusters[0]
		admitted, err := u.start(ctx, p, uid)
		if err != nil {
			failed = append(failed, fmt.Errorf("cluster %s: %w", uid, err))
			if ctx.Err() != nil || store.IsUnavailable(err) {
				break
			}
		}
		if err == nil && !admitted {
			break
		}
		q.clusters = q.clusters[1:]
	}
	u.queues[p.GetName()] = q
	return errors.Join(failed...)
}

// candidates returns the clusters to upgrade: the rest of the last search while the policies and the catalogue are the same, or
// the result of a new search.
func (u *Upgrader) candidates(ctx context.Context, p *csv1.UpgradePolicy, all []*csv1.UpgradePolicy) (upgradeQueue, error) {
	now, catalog := u.Store.Now(), u.Catalog()
	var of strings.Builder
	for _, other := range all {
		fmt.Fprintln(&of, other.GetName(), other.GetUpdateTime().AsTime().UnixMicro())
	}
	q, searched := u.queues[p.GetName()]
	searched = searched && q.of == of.String() && q.catalog == catalog
	if searched && (len(q.clusters) > 0 || now.Sub(q.found) < max(policyInterval, searchPause*q.took)) {
		return q, nil
	}
	// Read before the search, so that changes during the search count as changes.
	clock, err := u.Store.Clock(ctx)
	if err != nil {
		return q, err
	}
	if searched && q.none && q.revision == clock.Revision {
		q.found = now
		return q, nil // no cluster and no upgrade has changed
	}
	began := time.Now()
	q = upgradeQueue{of: of.String(), catalog: catalog, found: now, revision: clock.Revision}
	err = EachCandidacy(ctx, u.Store, p, all, catalog, func(c *fleet.Cluster, candidacy upgradeplan.Candidacy) {
		if candidacy.Version != "" {
			q.clusters = append(q.clusters, c.UID)
		}
	})
	q.none, q.took = len(q.clusters) == 0, time.Since(began)
	return q, err
}

// EachCandidacy calls visit for every cluster that a policy selects.
func EachCandidacy(ctx context.Context, s *store.Store, p *csv1.UpgradePolicy, all []*csv1.UpgradePolicy, catalog *release.Catalog, visit func(*fleet.Cluster, upgradeplan.Candidacy)) error {
	known := upgradeplan.FleetState{OwnPolicy: map[string]bool{}}
	for _, other := range all {
		if uid := other.GetSpec().GetClusterUid(); uid != "" {
			known.OwnPolicy[uid] = true
		}
	}
	var err error
	if known.Active, known.Ended, err = s.KnownUpgrades(ctx); err != nil {
		return err
	}
	for filter := (store.Filter{Limit: policyPage}); ; {
		clusters, _, err := s.ListClusters(ctx, filter)
		if err != nil {
			return err
		}
		for _, c := range clusters {
			if candidacy := upgradeplan.EvaluatePolicy(p, c, known, catalog); candidacy.Matches {
				visit(c, candidacy)
			}
		}
		if len(clusters) < filter.Limit {
			return nil
		}
		filter.After = clusters[len(clusters)-1].UID
	}
}

// start starts the upgrade of one cluster. admitted is false if the limit allows no other upgrade. A cluster that has changed
// meanwhile is left to the next search.
func (u *Upgrader) start(ctx context.Context, p *csv1.UpgradePolicy, uid string) (admitted bool, err error) {
	var started *fleet.Upgrade
	err = u.Store.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) (err error) {
		t, now := tx.Aggregates[uid], u.Store.Now()
		admitted, started = true, nil
		if t.Cluster == nil {
			return nil
		}
		catalog := u.Catalog()
		candidacy := upgradeplan.EvaluatePolicy(p, t.Cluster, upgradeplan.FleetState{Active: map[string]bool{uid: len(t.ActiveUpgrades()) > 0}}, catalog)
		if candidacy.Version == "" {
			return nil
		}
		plan := upgradeplan.Plan(now, t, catalog, candidacy.Version, p.GetSpec().GetNodePools())
		if len(plan.GetRefusals()) > 0 || slices.ContainsFunc(plan.GetGates(), func(g *csv1.UpgradeGate) bool {
			return g.GetState() != csv1.UpgradeGateState_UPGRADE_GATE_STATE_PASSED
		}) {
			return nil // an upgrade that waits would use up the limit
		}
		if admitted, err = tx.AdmitUpgrade(ctx, p.GetName(), int(p.GetSpec().GetMaxConcurrent()), u.Limit); err != nil || !admitted {
			return err
		}
		// The wait for the admission can be long. With an earlier time the records would show this upgrade beside one that ended
		// before it was admitted, and so more upgrades at once than the limit.
		now = u.Store.Now()
		started = fleet.NewUpgrade(uuid.NewString(), uid, &csv1.UpgradeSpec{Version: plan.GetToVersion(), NodePools: p.GetSpec().GetNodePools(),
			Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_POLICY, Policy: p.GetName(), Actor: p.GetActor()}, plan.GetFromVersion(), plan.GetSteps(), now)
		t.Upgrades = append(t.Upgrades, started)
		return u.Renderer.Region.Settle(now, t, u.Renderer)
	})
	if err != nil {
		return false, err
	}
	if started != nil {
		u.Log.InfoContext(ctx, "upgrade of a policy started", logkey.UpgradePolicy, p.GetName(), logkey.UpgradeUID, started.UID, logkey.ClusterUID, uid,
			logkey.Version, started.Spec.GetVersion())
	}
	return admitted, nil
}
