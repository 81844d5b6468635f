package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/upgradeplan"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

func invalidVersion(format string, args ...any) error {
	return apierror.InvalidFields([]apierror.Violation{{Field: "spec.version.id", Message: fmt.Sprintf(format, args...)}})
}

// customerVersion starts the upgrade that a newer generation of a cluster requests. It starts none if the control plane
// already has the version, and returns an error if the version would be lowered or cannot be reached.
func (s *Service) customerVersion(ctx context.Context, t *fleet.ClusterAggregate, r *csv1.ApplyClusterRequest, now time.Time) error {
	c, spec := t.Cluster, r.GetSpec()
	target, direct, err := s.customerTarget(c, spec)
	if err != nil {
		return err
	}
	s.withdraw(now, t, spec)
	switch {
	case target == nil:
		return nil
	case c.Status.GetObservedGeneration() == 0:
		// The cluster is not installed, so there is nothing to upgrade.
		c.Release = fleet.Release{Version: target.Version.String(), Image: target.Image}
		return nil
	}
	for _, u := range t.ActiveUpgrades() {
		if u.Spec.GetVersion() == target.Version.String() {
			// The active upgrade leads to the requested version already.
			return nil
		}
	}
	from, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		return err
	}
	steps := upgradeplan.DirectSteps(from.String(), target)
	if !direct {
		steps = upgradeplan.ControlPlaneSteps(s.o.Releases.Catalog(), from, target, release.Channel(channelGroup(spec.GetVersion()), target.Version.MinorID()))
	}
	uid := uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "hcpmesh upgrade %s %d", strings.ToLower(c.UID), r.GetGeneration())).String()
	u := fleet.NewUpgrade(uid, c.UID, &csv1.UpgradeSpec{Version: target.Version.String(), Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_CUSTOMER,
		ClusterGeneration: r.GetGeneration()}, from.String(), steps, now)
	t.Upgrades = append(t.Upgrades, u)
	// A customer who requests another minor version thereby agrees to it.
	_ = u.Acknowledge(now, t, fleet.GateMinorVersion, nil)
	s.o.Log.InfoContext(ctx, "a customer requested an upgrade", logkey.UpgradeUID, uid, logkey.ClusterUID, c.UID, logkey.ResourceID, c.ResourceID,
		logkey.From, from.String(), logkey.To, target.Version.String(), logkey.Generation, r.GetGeneration())
	return nil
}

// customerTarget returns the release that a newer generation requests for the control plane, or nil. direct reports that
// the update graph does not apply.
func (s *Service) customerTarget(c *fleet.Cluster, spec *csv1.ClusterSpec) (target *release.Release, direct bool, err error) {
	catalog := s.o.Releases.Catalog()
	at, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		return nil, false, err
	}
	exact, wasExact := spec.GetExperiments()[experiment.ExactVersion], c.Spec.GetExperiments()[experiment.ExactVersion]
	wanted, err := release.ParseMinor(spec.GetVersion().GetId())
	if err != nil {
		return nil, false, invalidVersion("Invalid value: %s", err)
	}
	group := channelGroup(spec.GetVersion())
	if exact != "" {
		if exact == at.String() {
			return nil, false, nil
		}
		found, ok := catalog.Exact(exact)
		switch {
		case !ok:
			_, err := s.newestRelease(spec)
			return nil, false, err
		case found.Version.Compare(at) < 0 && exact == wasExact:
			return nil, false, nil // it was upgraded since
		case found.Version.Compare(at) < 0:
			return nil, false, lowered(c, catalog, exact)
		}
		return found, true, nil
	}
	switch distance := wanted.Ordinal() - at.Ordinal(); {
	case distance < 0 && c.Spec.GetVersion().GetId() == spec.GetVersion().GetId():
		return nil, false, nil // an SRE has upgraded it since
	case distance < 0:
		return nil, false, lowered(c, catalog, wanted.MinorID())
	case distance == 0 && channelGroup(c.Spec.GetVersion()) == group && wasExact == "":
		return nil, false, nil
	case distance == 0:
		newest, ok := catalog.Newest(wanted.MinorID(), group)
		if !ok {
			_, err := s.newestRelease(spec)
			return nil, false, err
		}
		if newest.Version.Compare(at) <= 0 || catalog.Path(at, newest.Version, release.Channel(group, wanted.MinorID()), false) == nil {
			return nil, false, nil
		}
		return newest, false, nil
	case distance > 1:
		return nil, false, invalidVersion("Invalid value: %q: must be at most one minor version above %s, which the control plane runs: supported values: %s",
			wanted.MinorID(), at, strings.Join(minorsOf(upgradeplan.Targets(c, catalog)), ", "))
	}
	found, err := reachable(catalog, at, wanted, group)
	if found != nil || err != nil {
		return found, false, err
	}
	if _, err := s.newestRelease(spec); err != nil {
		return nil, false, err
	}
	return nil, false, invalidVersion("Invalid value: %q: the update graph has no path to it from %s in channel %s: supported values: %s",
		wanted.MinorID(), at, release.Channel(group, wanted.MinorID()), strings.Join(versionsOf(upgradeplan.Targets(c, catalog)), ", "))
}

// reachable returns the newest reachable release of a minor version in a channel group. It prefers one without risks.
func reachable(catalog *release.Catalog, from, wanted release.Version, group string) (*release.Release, error) {
	channel := release.Channel(group, wanted.MinorID())
	var risky *release.Release
	all := catalog.Releases()
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		switch {
		case !r.Version.SameMinor(wanted) || !r.In(channel):
		case catalog.Path(from, r.Version, channel, false) != nil:
			return r, nil
		case risky == nil && catalog.Path(from, r.Version, channel, true) != nil:
			risky = r
		}
	}
	return risky, nil
}

func lowered(c *fleet.Cluster, catalog *release.Catalog, id string) error {
	return invalidVersion("Invalid value: %q: must not be lower than %s, the release of the control plane; a version cannot be lowered: supported values: %s",
		id, c.Release.Version, strings.Join(append([]string{c.Release.Version}, versionsOf(upgradeplan.Targets(c, catalog))...), ", "))
}

func versionsOf(targets []*csv1.UpgradeTarget) []string {
	list := []string{}
	for _, t := range targets {
		list = append(list, t.GetVersion())
	}
	return list
}

func minorsOf(targets []*csv1.UpgradeTarget) []string {
	list := []string{}
	for _, t := range targets {
		if minor := t.GetVersion()[:strings.LastIndexByte(t.GetVersion(), '.')]; t.GetMinor() && (len(list) == 0 || list[len(list)-1] != minor) {
			list = append(list, minor)
		}
	}
	return list
}

// withdraw cancels upgrades that have not started when the customer requests another version.
func (s *Service) withdraw(now time.Time, t *fleet.ClusterAggregate, spec *csv1.ClusterSpec) {
	was, is := t.Cluster.Spec, spec
	if proto.Equal(was.GetVersion(), is.GetVersion()) && was.GetExperiments()[experiment.ExactVersion] == is.GetExperiments()[experiment.ExactVersion] {
		return
	}
	for _, u := range t.ActiveUpgrades() {
		u.Withdraw(now, "The customer requested version "+is.GetVersion().GetId()+" in channel group "+channelGroup(is.GetVersion())+" before the upgrade started.")
	}
}

// PlanUpgrade returns what an upgrade would do.
func (s *Service) PlanUpgrade(ctx context.Context, r *csv1.PlanUpgradeRequest) (*csv1.UpgradePlan, error) {
	if err := validUID("cluster_uid", r.GetClusterUid()); err != nil {
		return nil, s.answer(ctx, err)
	}
	t, err := s.o.Store.Read(ctx, strings.ToLower(r.GetClusterUid()))
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	if t.Cluster == nil {
		return nil, s.answer(ctx, unknown(ReasonClusterUnknown, "cluster", r.GetClusterUid()))
	}
	plan := upgradeplan.Plan(s.o.Store.Now(), t, s.o.Releases.Catalog(), r.GetVersion(), r.GetNodePools())
	if t.Cluster.Deleting() {
		plan.Refusals = append(plan.Refusals, &csv1.UpgradeRefusal{Rule: ReasonClusterDeleting, Message: "The cluster is being deleted."})
	}
	return plan, nil
}

// StartUpgrade starts an upgrade, once per UID.
func (s *Service) StartUpgrade(ctx context.Context, r *csv1.StartUpgradeRequest) (*csv1.Upgrade, error) {
	c := check{violations: validateOnce(r.GetUid(), r.GetClusterUid())}
	c.matches("version", r.GetVersion(), fullPattern)
	c.actor("actor", r.GetActor())
	if at := r.GetNotBefore(); at != nil && at.CheckValid() != nil {
		c.fail("not_before", "Invalid value: must be a time")
	}
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	uid, clusterUID := strings.ToLower(r.GetUid()), strings.ToLower(r.GetClusterUid())
	spec := &csv1.UpgradeSpec{Version: r.GetVersion(), NodePools: r.GetNodePools(), NotBefore: r.GetNotBefore(), Actor: r.GetActor(),
		Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_OPERATOR}
	known, err := s.o.Store.Upgrade(ctx, uid)
	switch {
	case err == nil:
		if err := sameUpgrade(known, clusterUID, spec); err != nil {
			return nil, s.answer(ctx, err)
		}
		return known.Proto(), nil
	case !errors.Is(err, store.ErrUnknown):
		return nil, s.answer(ctx, err)
	}
	var upgrade *fleet.Upgrade
	err = s.o.Store.Update(ctx, []string{clusterUID}, func(_ context.Context, tx *store.Tx) (err error) {
		upgrade, err = s.newUpgrade(tx.Aggregates[clusterUID], uid, spec, r.GetAcknowledge())
		return err
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, "an upgrade is started", clusterUID, r.GetActor(), logkey.UpgradeUID, uid, logkey.To, r.GetVersion(), logkey.State, upgrade.State().String())
	return upgrade.Proto(), nil
}

func sameUpgrade(known *fleet.Upgrade, clusterUID string, spec *csv1.UpgradeSpec) error {
	var c check
	c.immutable("cluster_uid", known.ClusterUID == clusterUID)
	c.immutable("version", known.Spec.GetVersion() == spec.GetVersion())
	c.immutable("node_pools", known.Spec.GetNodePools() == spec.GetNodePools())
	c.immutable("not_before", proto.Equal(known.Spec.GetNotBefore(), spec.GetNotBefore()))
	return apierror.InvalidFields(c.violations)
}

func (s *Service) newUpgrade(t *fleet.ClusterAggregate, uid string, spec *csv1.UpgradeSpec, acknowledge []string) (*fleet.Upgrade, error) {
	now := s.o.Store.Now()
	if u := t.Upgrade(uid); u != nil {
		return u, sameUpgrade(u, u.ClusterUID, spec)
	}
	if err := wantedCluster(t); err != nil {
		return nil, err
	}
	plan := upgradeplan.Plan(now, t, s.o.Releases.Catalog(), spec.GetVersion(), spec.GetNodePools())
	if len(plan.GetRefusals()) > 0 {
		return nil, failedPrecondition(plan.GetRefusals()[0].GetRule(), plan.GetRefusals()[0].GetMessage())
	}
	u := fleet.NewUpgrade(uid, t.Cluster.UID, spec, plan.GetFromVersion(), plan.GetSteps(), now)
	t.Upgrades = append(t.Upgrades, u)
	for _, gate := range acknowledge {
		if err := refused(u.Acknowledge(now, t, gate, spec.GetActor())); err != nil {
			return nil, err
		}
	}
	return u, s.settle(now, t)
}

// refused converts an UpgradeRefusal to an error of the API. It returns other errors unchanged.
func refused(err error) error {
	var broken *fleet.UpgradeRefusal
	if errors.As(err, &broken) {
		return failedPrecondition(broken.Rule, broken.Message)
	}
	return err
}

// GetUpgrade returns an upgrade.
func (s *Service) GetUpgrade(ctx context.Context, r *csv1.GetUpgradeRequest) (*csv1.Upgrade, error) {
	return read(ctx, s, r.GetUid(), s.o.Store.Upgrade, ReasonUpgradeUnknown, "upgrade")
}

// ListUpgrades returns a page of upgrades.
func (s *Service) ListUpgrades(ctx context.Context, r *csv1.ListUpgradesRequest) (*csv1.ListUpgradesResponse, error) {
	upgrades, token, revision, err := listOfCluster(ctx, r, r.GetStates(), s.o.Store.ListUpgrades, func(u *fleet.Upgrade) string { return u.UID })
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListUpgradesResponse{Revision: revision, NextPageToken: token}
	for _, u := range upgrades {
		response.Upgrades = append(response.Upgrades, u.Proto())
	}
	return response, nil
}

// PauseUpgrade pauses an upgrade.
func (s *Service) PauseUpgrade(ctx context.Context, r *csv1.PauseUpgradeRequest) (*csv1.Upgrade, error) {
	return s.onUpgrade(ctx, r.GetUid(), r.GetActor(), "an upgrade is paused", func(now time.Time, t *fleet.ClusterAggregate, u *fleet.Upgrade) error {
		return u.Pause(t, r.GetActor())
	})
}

// ResumeUpgrade resumes a paused upgrade.
func (s *Service) ResumeUpgrade(ctx context.Context, r *csv1.ResumeUpgradeRequest) (*csv1.Upgrade, error) {
	return s.onUpgrade(ctx, r.GetUid(), r.GetActor(), "an upgrade is resumed", func(_ time.Time, _ *fleet.ClusterAggregate, u *fleet.Upgrade) error {
		return u.Resume()
	})
}

// AbortUpgrade aborts an upgrade.
func (s *Service) AbortUpgrade(ctx context.Context, r *csv1.AbortUpgradeRequest) (*csv1.Upgrade, error) {
	return s.onUpgrade(ctx, r.GetUid(), r.GetActor(), "an upgrade is aborted", func(now time.Time, t *fleet.ClusterAggregate, u *fleet.Upgrade) error {
		return u.Abort(now, t, r.GetActor())
	})
}

// AcknowledgeUpgradeGate acknowledges a gate of an upgrade.
func (s *Service) AcknowledgeUpgradeGate(ctx context.Context, r *csv1.AcknowledgeUpgradeGateRequest) (*csv1.Upgrade, error) {
	return s.onUpgrade(ctx, r.GetUid(), r.GetActor(), "a gate of an upgrade is acknowledged: "+r.GetGate(), func(now time.Time, t *fleet.ClusterAggregate, u *fleet.Upgrade) error {
		return u.Acknowledge(now, t, r.GetGate(), r.GetActor())
	})
}

// onUpgrade executes an action on an upgrade.
func (s *Service) onUpgrade(ctx context.Context, uid string, actor *csv1.Actor, what string, change func(time.Time, *fleet.ClusterAggregate, *fleet.Upgrade) error) (*csv1.Upgrade, error) {
	var c check
	c.actor("actor", actor)
	err := validUID("uid", uid)
	if err == nil {
		err = apierror.InvalidFields(c.violations)
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	uid = strings.ToLower(uid)
	known, err := s.o.Store.Upgrade(ctx, uid)
	if errors.Is(err, store.ErrUnknown) {
		err = unknown(ReasonUpgradeUnknown, "upgrade", uid)
	}
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	upgrade := known
	err = s.o.Store.Update(ctx, []string{known.ClusterUID}, func(_ context.Context, tx *store.Tx) error {
		t, now := tx.Aggregates[known.ClusterUID], s.o.Store.Now()
		// An upgrade that ended long ago is not part of the aggregate. Its methods refuse every action.
		if upgrade = t.Upgrade(uid); upgrade == nil {
			upgrade = known
		}
		if err := change(now, t, upgrade); err != nil {
			return refused(err)
		}
		return s.settle(now, t)
	})
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	s.audit(ctx, what, upgrade.ClusterUID, actor, logkey.UpgradeUID, uid, logkey.State, upgrade.State().String())
	return upgrade.Proto(), nil
}
