// Package upgradeplan decides which upgrades of a cluster are possible and which of them an upgrade policy starts.
//
// Plan and Targets combine the release catalogue with the state of one cluster. EvaluatePolicy decides whether a policy
// upgrades a cluster now, and to which version. All functions are pure; package fleet carries out an accepted upgrade.
//
// A Schedule is the maintenance schedule of an upgrade policy: either a cron expression with the length of a window, or a list of weekly
// windows. Both become cron schedules; package cron computes the times. All times are UTC.
package upgradeplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Releases is the part of a release catalogue that planning reads.
type Releases interface {
	Exact(version string) (*release.Release, bool)
	RefusalOf(version string) (release.Refusal, bool)
	Path(from, to release.Version, channel string, risky bool) []release.Update
	Reachable(from release.Version, channel string) []*release.Release
	Minors(channelGroup string) []string
	Releases() []*release.Release
}

// Plan returns the steps and gates of an upgrade to a version, the reasons for which it would be refused, and the versions
// that are possible. An empty version means the newest recommended release of the cluster's minor version.
func Plan(now time.Time, t *fleet.ClusterAggregate, releases Releases, version string, followers csv1.NodePoolFollow) *csv1.UpgradePlan {
	c := t.Cluster
	group := c.Spec.GetVersion().GetChannelGroup()
	plan := &csv1.UpgradePlan{ClusterUid: c.UID, FromVersion: c.Release.Version, ToVersion: version, Targets: Targets(c, releases)}
	refuse := func(rule, format string, args ...any) {
		plan.Refusals = append(plan.Refusals, &csv1.UpgradeRefusal{Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	allowed := "Allowed versions: " + orNone(targetVersions(plan.GetTargets())) + "."
	if c.Status.GetObservedGeneration() == 0 {
		refuse(fleet.RuleClusterNotInstalled, "The cluster is not installed. Until it is, change the version of its resource instead.")
	}
	if active := t.ActiveUpgrades(); len(active) > 0 {
		plan.CurrentUpgradeUid = active[0].UID
		refuse(fleet.RuleUpgradeInProgress, "Upgrade %s to %s is active: %s Another upgrade is allowed after it ended.", active[0].UID, active[0].Spec.GetVersion(), active[0].Status.GetMessage())
	}
	from, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		refuse(fleet.RuleVersionUnknown, "The version %q of the cluster is malformed.", c.Release.Version)
		return plan
	}
	if version == "" {
		plan.ToVersion = NewestPatch(c, releases)
	}
	target, known := releases.Exact(plan.GetToVersion())
	refusal, isRefused := releases.RefusalOf(plan.GetToVersion())
	switch {
	case isRefused:
		refuse(fleet.RuleReleaseRefused, "Release %s is refused: %s. %s", plan.GetToVersion(), refusal.Reason, allowed)
		return plan
	case !known:
		refuse(fleet.RuleVersionUnknown, "There is no release %q. %s", plan.GetToVersion(), allowed)
		return plan
	case target.Version.Compare(from) < 0:
		refuse(fleet.RuleVersionNotNewer, "The control plane runs %s, and a version cannot be lowered. %s", from, allowed)
		return plan
	case target.Version.Ordinal()-from.Ordinal() > 1:
		refuse(fleet.RuleMinorSkipped, "An upgrade from %s to %s skips a minor version; a control plane is upgraded by one minor version at a time. %s", from, target.Version, allowed)
		return plan
	case target.Version != from:
		channel := release.Channel(group, target.Version.MinorID())
		path := releases.Path(from, target.Version, channel, true)
		if path == nil {
			refuse(fleet.RuleNoUpdatePath, "The update graph has no path from %s to %s in channel %s. %s", from, target.Version, channel, allowed)
			return plan
		}
		plan.Steps = controlPlaneSteps(from.String(), path)
		if behind := fleet.PoolsTooFarBehind(t, target.Version.String()); len(behind) > 0 {
			refuse(fleet.RuleVersionSkew, "A node pool may be at most %d minor versions behind its control plane. Too far behind %s: %s. Upgrade these node pools first.",
				fleet.MaxSkew, target.Version, strings.Join(behind, ", "))
		}
	}
	for _, p := range t.Pools {
		if fleet.Follows(followers, p) && fleet.IsNewer(target.Version.String(), p.Release.Version) {
			plan.Steps = append(plan.Steps, fleet.NodePoolStep(p, fleet.Release{Version: target.Version.String(), Image: target.Image}))
		}
	}
	if len(plan.GetSteps()) == 0 {
		refuse(fleet.RuleVersionNotNewer, "The cluster already runs %s. %s", from, allowed)
		return plan
	}
	// Node pools in order of name, after the steps of the control plane, which name no pool.
	slices.SortStableFunc(plan.GetSteps(), func(a, b *csv1.UpgradeStep) int { return strings.Compare(a.GetNodePool(), b.GetNodePool()) })
	trial := fleet.NewUpgrade("", c.UID, &csv1.UpgradeSpec{Version: target.Version.String(), NodePools: followers}, c.Release.Version, plan.GetSteps(), now)
	trial.EvaluateGates(now, t)
	plan.Gates = trial.Status.GetGates()
	return plan
}

func controlPlaneSteps(from string, path []release.Update) []*csv1.UpgradeStep {
	var steps []*csv1.UpgradeStep
	for _, u := range path {
		s := &csv1.UpgradeStep{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, FromVersion: from, ToVersion: u.Version.String(), ToImage: u.Image,
			State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED}
		for _, risk := range u.Risks {
			s.Risks = append(s.Risks, risk.Name)
		}
		steps = append(steps, s)
		from = s.ToVersion
	}
	return steps
}

// DirectSteps returns the step of a control plane to a release without regard to the update graph, for the experimental tag
// that requests an exact version.
func DirectSteps(from string, to *release.Release) []*csv1.UpgradeStep {
	return controlPlaneSteps(from, []release.Update{{Release: to}})
}

// ControlPlaneSteps returns the steps of a control plane to a release in a channel. It prefers a path without risks, and
// returns nil if there is no path.
func ControlPlaneSteps(releases Releases, from release.Version, to *release.Release, channel string) []*csv1.UpgradeStep {
	return controlPlaneSteps(from.String(), releases.Path(from, to.Version, channel, true))
}

// NewestPatch returns the newest recommended release of a cluster's minor version, or the version that the cluster runs.
func NewestPatch(c *fleet.Cluster, releases Releases) string {
	from, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		return c.Release.Version
	}
	for _, r := range releases.Reachable(from, release.Channel(c.Spec.GetVersion().GetChannelGroup(), from.MinorID())) {
		if r.Version.SameMinor(from) {
			return r.Version.String()
		}
	}
	return c.Release.Version
}

// Targets returns the versions that a cluster can be upgraded to, newest first: releases of its own minor version and of the
// next one that are in its channel group and that the update graph has a path to.
func Targets(c *fleet.Cluster, releases Releases) []*csv1.UpgradeTarget {
	from, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		return nil
	}
	group := c.Spec.GetVersion().GetChannelGroup()
	var targets []*csv1.UpgradeTarget
	for _, r := range slices.Backward(releases.Releases()) {
		distance := r.Version.Ordinal() - from.Ordinal()
		channel := release.Channel(group, r.Version.MinorID())
		if distance < 0 || distance > 1 || r.Version.Compare(from) <= 0 || !r.In(channel) {
			continue
		}
		path := releases.Path(from, r.Version, channel, true)
		if path == nil {
			continue
		}
		target := &csv1.UpgradeTarget{Version: r.Version.String(), Minor: distance != 0}
		for _, u := range path {
			target.Path = append(target.Path, u.Version.String())
			for _, risk := range u.Risks {
				target.Risks = append(target.Risks, risk.Name)
			}
		}
		targets = append(targets, target)
	}
	return targets
}

func targetVersions(targets []*csv1.UpgradeTarget) []string {
	var list []string
	for _, t := range targets {
		list = append(list, t.GetVersion())
	}
	return list
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
