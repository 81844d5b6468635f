package delivery

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
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/upgradeplan"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

const (
	// upgradeInterval is how often policies are looked at when nothing tells to: windows open, releases come out, and other
	// replicas' upgrades end.
	upgradeInterval = 5 * time.Second
	// lookShare is how many times as long as a look at all clusters takes nobody looks again, if it found nothing.
	lookShare   = 20
	upgradePage = 500
	dueLimit    = 100
)

// UpgraderOptions are what an upgrader works with.
type UpgraderOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Catalog  func() *release.Catalog
	// Limit is how many upgrades by policies may be under way at once, of all policies together; 0 is no limit.
	Limit   int
	Metrics prometheus.Registerer
	// Interval is the longest time between two looks at the policies; 0 means 5 seconds.
	Interval time.Duration
}

// Upgrader begins upgrades: those that policies want, when their windows are open and their limits allow it, and those that
// waited for a time. Any number of replicas may do so: each beginning is a transaction that counts what is under way.
type Upgrader struct {
	UpgraderOptions
	woken   chan struct{}
	running atomic.Int64
	// queues are the clusters that were found for a policy and not begun with, by its name.
	queues map[string]queue
}

// queue is what one look at all clusters found for a policy.
type queue struct {
	// of is of which policies it was: those for one cluster are taken out of the others.
	of       string
	catalog  *release.Catalog
	clusters []string
	// none says that it found no cluster.
	none bool
	// found is when it was, revision up to where it saw everything, and took what it took.
	found    time.Time
	revision int64
	took     time.Duration
}

// NewUpgrader makes an upgrader; Run runs it.
func NewUpgrader(o UpgraderOptions) *Upgrader {
	if o.Interval == 0 {
		o.Interval = upgradeInterval
	}
	u := &Upgrader{UpgraderOptions: o, woken: make(chan struct{}, 1), queues: map[string]queue{}}
	o.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "cluster_service", Name: "policy_upgrades_running",
		Help: "Upgrades by policies that are under way."}, func() float64 { return float64(u.running.Load()) }))
	return u
}

// Wake starts a look at the policies and at upgrades that are due soon. It does not block.
func (u *Upgrader) Wake() {
	select {
	case u.woken <- struct{}{}:
	default:
	}
}

// Run begins upgrades until ctx is over.
func (u *Upgrader) Run(ctx context.Context) {
	for {
		wait := u.Interval
		next, err := u.beginDue(ctx)
		if err == nil && !next.IsZero() {
			wait = max(0, min(wait, next.Sub(u.Store.Now())))
		}
		if !store.IsUnavailable(err) {
			err = errors.Join(err, u.followPolicies(ctx))
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("beginning upgrades failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-u.woken:
		case <-time.After(wait):
		}
	}
}

// beginDue settles the clusters whose upgrades waited for a time, and says when the next time comes.
func (u *Upgrader) beginDue(ctx context.Context) (next time.Time, err error) {
	clusters, next, err := u.Store.DueUpgrades(ctx, dueLimit)
	if err != nil {
		return next, err
	}
	err = each(ctx, clusters, func(uid string) error {
		err := u.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
			return u.Renderer.Region.SettleObserved(u.Store.Now(), tx.Aggregates[uid], u.Renderer)
		})
		if err != nil {
			return fmt.Errorf("beginning an upgrade whose time has come: %w", err)
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

// followPolicy begins as many of a policy's upgrades as may be under way. A cluster that cannot be begun with is left to the
// next look.
func (u *Upgrader) followPolicy(ctx context.Context, p *csv1.UpgradePolicy, all []*csv1.UpgradePolicy) error {
	windows, err := schedule.Parse(p.GetSpec().GetSchedule())
	if err != nil {
		return err // was checked when it was stored
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
		admitted, err := u.begin(ctx, p, uid)
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

// candidates are the clusters to begin with: what is left of the last look, as long as the policy and the catalogue are the
// same, or those of a new one.
func (u *Upgrader) candidates(ctx context.Context, p *csv1.UpgradePolicy, all []*csv1.UpgradePolicy) (queue, error) {
	now, catalog := u.Store.Now(), u.Catalog()
	var of strings.Builder
	for _, other := range all {
		fmt.Fprintln(&of, other.GetName(), other.GetUpdateTime().AsTime().UnixMicro())
	}
	q, looked := u.queues[p.GetName()]
	looked = looked && q.of == of.String() && q.catalog == catalog
	if looked && (len(q.clusters) > 0 || now.Sub(q.found) < max(upgradeInterval, lookShare*q.took)) {
		return q, nil
	}
	// Before the look, so that what changes meanwhile counts as changed.
	clock, err := u.Store.Clock(ctx)
	if err != nil {
		return q, err
	}
	if looked && q.none && q.revision == clock.Revision {
		q.found = now
		return q, nil // nothing has changed of any cluster or upgrade
	}
	began := time.Now()
	q = queue{of: of.String(), catalog: catalog, found: now, revision: clock.Revision}
	err = EachCandidacy(ctx, u.Store, p, all, catalog, func(c *fleet.Cluster, candidacy upgradeplan.Candidacy) {
		if candidacy.Version != "" {
			q.clusters = append(q.clusters, c.UID)
		}
	})
	q.none, q.took = len(q.clusters) == 0, time.Since(began)
	return q, err
}

// EachCandidacy calls visit with every cluster that a policy concerns.
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
	for filter := (store.Filter{Limit: upgradePage}); ; {
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

// begin begins with one cluster, unless there is no room for another upgrade. A cluster that has changed meanwhile is left to
// the next look.
func (u *Upgrader) begin(ctx context.Context, p *csv1.UpgradePolicy, uid string) (admitted bool, err error) {
	var begun *fleet.Upgrade
	err = u.Store.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) (err error) {
		t, now := tx.Aggregates[uid], u.Store.Now()
		admitted, begun = true, nil
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
			return nil // one that waited would take another's place
		}
		if admitted, err = tx.AdmitUpgrade(ctx, p.GetName(), int(p.GetSpec().GetMaxConcurrent()), u.Limit); err != nil || !admitted {
			return err
		}
		begun = fleet.NewUpgrade(uuid.NewString(), uid, &csv1.UpgradeSpec{Version: plan.GetToVersion(), NodePools: p.GetSpec().GetNodePools(),
			Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_POLICY, Policy: p.GetName(), Actor: p.GetActor()}, plan.GetFromVersion(), plan.GetSteps(), now)
		t.Upgrades = append(t.Upgrades, begun)
		return u.Renderer.Region.Settle(now, t, u.Renderer)
	})
	if err != nil {
		return false, err
	}
	if begun != nil {
		slog.InfoContext(ctx, "a policy begins an upgrade", "upgrade_policy", p.GetName(), "upgrade_uid", begun.UID, "cluster_uid", uid,
			"from", begun.Status.GetFromVersion(), "to", begun.Spec.GetVersion())
	}
	return admitted, nil
}
