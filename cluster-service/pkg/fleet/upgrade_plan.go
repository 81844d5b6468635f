package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Releases is what planning needs of a catalogue.
type Releases interface {
	Exact(version string) (*release.Release, bool)
	Path(from, to release.Version, channel string, risky bool) []release.Update
	Reachable(from release.Version, channel string) []*release.Release
	Minors(channelGroup string) []string
	Releases() []*release.Release
}

// PlanUpgrade says what an upgrade to a version would do as things stand, why it would be refused, and what would be
// allowed. An empty version is the newest of the minor version that is recommended.
func PlanUpgrade(now time.Time, t *ClusterAggregate, releases Releases, version string, followers csv1.NodePoolFollow) *csv1.UpgradePlan {
	c := t.Cluster
	group := c.Spec.GetVersion().GetChannelGroup()
	plan := &csv1.UpgradePlan{ClusterUid: c.UID, FromVersion: c.Release.Version, ToVersion: version, Targets: Targets(c, releases)}
	refuse := func(rule, format string, args ...any) {
		plan.Refusals = append(plan.Refusals, &csv1.UpgradeRefusal{Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	allowed := "Allowed are " + orNone(targetVersions(plan.GetTargets())) + "."
	if c.Status.GetObservedGeneration() == 0 {
		refuse(RuleClusterNotInstalled, "The cluster is not installed yet; until it is, a new version of its resource is all it takes.")
	}
	if active := t.ActiveUpgrades(); len(active) > 0 {
		plan.CurrentUpgradeUid = active[0].UID
		refuse(RuleUpgradeInProgress, "Upgrade %s to %s is under way: %s Allowed is another one when it has ended.", active[0].UID, active[0].Spec.GetVersion(), active[0].Status.GetMessage())
	}
	from, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		refuse(RuleVersionUnknown, "The cluster's own version %q cannot be read.", c.Release.Version)
		return plan
	}
	if version == "" {
		plan.ToVersion = NewestPatch(c, releases)
	}
	target, known := releases.Exact(plan.GetToVersion())
	switch {
	case !known:
		refuse(RuleVersionUnknown, "There is no release %q. %s", plan.GetToVersion(), allowed)
		return plan
	case target.Version.Compare(from) < 0:
		refuse(RuleVersionNotNewer, "The control plane runs %s, and nothing lowers a version. %s", from, allowed)
		return plan
	case target.Version.Ordinal()-from.Ordinal() > 1:
		refuse(RuleMinorSkipped, "From %s the way to %s leads over the minor version between: a control plane goes up one minor version at a time. %s", from, target.Version, allowed)
		return plan
	case target.Version != from:
		path := releases.Path(from, target.Version, release.Channel(group, target.Version.MinorID()), true)
		if path == nil {
			refuse(RuleNoUpdatePath, "The update graph has no way from %s to %s in channel %s. %s", from, target.Version, release.Channel(group, target.Version.MinorID()), allowed)
			return plan
		}
		plan.Steps = controlPlaneSteps(from.String(), path)
		if behind := tooFarBehind(t, target.Version.String()); len(behind) > 0 {
			refuse(RuleVersionSkew, "A node pool may be %d minor versions behind its control plane. Behind %s by more would be %s; allowed is to upgrade them first.",
				MaxSkew, target.Version, strings.Join(behind, ", "))
		}
	}
	for _, p := range t.Pools {
		if follows(followers, p) && newer(target.Version.String(), p.Release.Version) {
			plan.Steps = append(plan.Steps, followerStep(p, Release{Version: target.Version.String(), Image: target.Image}))
		}
	}
	if len(plan.GetSteps()) == 0 {
		refuse(RuleVersionNotNewer, "The cluster runs %s already. %s", from, allowed)
		return plan
	}
	sortFollowers(plan.GetSteps())
	tried := NewUpgrade("", c.UID, &csv1.UpgradeSpec{Version: target.Version.String(), NodePools: followers}, c.Release.Version, plan.GetSteps(), now)
	tried.judgeGates(now, t)
	plan.Gates = tried.Status.GetGates()
	return plan
}

// sortFollowers orders node pools by name behind the control plane's steps.
func sortFollowers(steps []*csv1.UpgradeStep) {
	slices.SortStableFunc(steps, func(a, b *csv1.UpgradeStep) int { return strings.Compare(a.GetNodePool(), b.GetNodePool()) })
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

// NewUpgrade makes an upgrade that waits to begin.
func NewUpgrade(uid, clusterUID string, spec *csv1.UpgradeSpec, from string, steps []*csv1.UpgradeStep, now time.Time) *Upgrade {
	return &Upgrade{UID: uid, ClusterUID: clusterUID, Spec: spec, CreateTime: now, Status: &csv1.UpgradeStatus{
		State: csv1.UpgradeState_UPGRADE_STATE_WAITING, Message: "Accepted.", Since: timestamp(now), FromVersion: from, Steps: steps}}
}

// DirectStep leads to a release whatever the update graph says: what an experiment asks for.
func DirectStep(from string, to *release.Release) []*csv1.UpgradeStep {
	return controlPlaneSteps(from, []release.Update{{Release: to}})
}

// StepsTo are a control plane's steps to a release in a channel, those of a way without risks if there is one; nil when there
// is no way.
func StepsTo(releases Releases, from release.Version, to *release.Release, channel string) []*csv1.UpgradeStep {
	return controlPlaneSteps(from.String(), releases.Path(from, to.Version, channel, true))
}

// NewestPatch is the newest release of a cluster's minor version that is recommended to it, or what it runs.
func NewestPatch(c *Cluster, releases Releases) string {
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

// Targets lists where a cluster can go from the release that it was given: its own minor version's and the next one's
// releases that its channel group has, newest first.
func Targets(c *Cluster, releases Releases) []*csv1.UpgradeTarget {
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

// Behind says that a cluster's generation asks for more than the release that its control plane was given.
func (c *Cluster) Behind() bool {
	at, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		return false
	}
	if exact, err := release.ParseVersion(c.Spec.GetExperiments()[experiment.ExactVersion]); err == nil {
		return exact.Compare(at) > 0
	}
	wanted, err := release.ParseMinor(c.Spec.GetVersion().GetId())
	return err == nil && wanted.Ordinal() > at.Ordinal()
}

// owedToCustomer says that the customer's generation waits for an upgrade.
func (t *ClusterAggregate) owedToCustomer() bool {
	for _, u := range t.ActiveUpgrades() {
		if u.Spec.GetClusterGeneration() > 0 && (u.State() != csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS) {
			return true
		}
	}
	return t.Cluster.Behind()
}

// upgradeLayer is the progress of the upgrade that is under way. While the control plane moves for its customer, its own
// entry says so; for others the cluster is ready, and nothing but this says that something is awaited.
func upgradeLayer(t *ClusterAggregate) []layer {
	active := t.ActiveUpgrades()
	if len(active) == 0 {
		return nil
	}
	u := active[0]
	state, message := "Waiting", u.Status.GetMessage()
	switch moves := u.State() == csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE; {
	case moves && u.Spec.GetClusterGeneration() > 0:
		return nil
	case moves:
		state = "ControlPlane"
	case u.Status.GetPaused():
		state = "Paused"
	case u.State() == csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS:
		state = "NodePools"
	case slices.ContainsFunc(u.Status.GetGates(), func(g *csv1.UpgradeGate) bool {
		return g.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING && g.GetCanBeAcknowledged() && g.GetMessage() == message
	}):
		state = "AwaitingAcknowledgement"
	}
	return []layer{{LayerUpgrade, state, "Upgrade " + u.UID + " to " + u.Spec.GetVersion() + ": " + message}}
}
