package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// Upgrade is the row of an upgrade. Its spec is immutable. Its steps, with the images of the releases, are fixed when it is
// accepted, so it does not depend on the catalogue later.
type Upgrade struct {
	UID        string
	ClusterUID string
	Spec       *csv1.UpgradeSpec
	Status     *csv1.UpgradeStatus
	Revision   int64
	CreateTime time.Time
	// GoneTime is when the upgrade ended. From then on the row is a record.
	GoneTime time.Time
}

// Proto returns the upgrade as a message of the API.
func (u *Upgrade) Proto() *csv1.Upgrade {
	return &csv1.Upgrade{Uid: u.UID, ClusterUid: u.ClusterUID, Spec: u.Spec, Status: u.Status, Revision: u.Revision, CreateTime: timestamp(u.CreateTime)}
}

// State returns the state of the upgrade.
func (u *Upgrade) State() csv1.UpgradeState { return u.Status.GetState() }

// Active reports whether the upgrade has not ended.
func (u *Upgrade) Active() bool {
	switch u.State() {
	case csv1.UpgradeState_UPGRADE_STATE_WAITING, csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS:
		return true
	}
	return false
}

// Begun reports whether the control plane or a node pool got its release.
func (u *Upgrade) Begun() bool { return u.Status.GetStartTime() != nil }

// Gone reports whether only the record is left.
func (u *Upgrade) Gone() bool { return !u.GoneTime.IsZero() }

// Policy returns the name of the policy that started the upgrade; empty if no policy did.
func (u *Upgrade) Policy() string { return u.Spec.GetPolicy() }

// DueTime returns the earliest start of a waiting upgrade, or the time at which the components of its control plane are to
// be read; zero if it waits for no time.
func (u *Upgrade) DueTime() time.Time {
	if at := u.rollingOut().GetComponentsTime(); at != nil {
		return at.AsTime()
	}
	// After the gate has passed, the upgrade waits for something else.
	if u.State() != csv1.UpgradeState_UPGRADE_STATE_WAITING || u.Spec.GetNotBefore() == nil || u.Begun() ||
		u.gate(GateNotBefore).GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_PASSED {
		return time.Time{}
	}
	return u.Spec.GetNotBefore().AsTime()
}

// NewUpgrade returns an upgrade that waits for its start.
func NewUpgrade(uid, clusterUID string, spec *csv1.UpgradeSpec, from string, steps []*csv1.UpgradeStep, now time.Time) *Upgrade {
	return &Upgrade{UID: uid, ClusterUID: clusterUID, Spec: spec, CreateTime: now, Status: &csv1.UpgradeStatus{
		State: csv1.UpgradeState_UPGRADE_STATE_WAITING, Message: "Accepted.", Since: timestamp(now), FromVersion: from, Steps: steps}}
}

// Upgrade returns the upgrade with a UID, or nil if it is unknown or ended long ago.
func (t *ClusterAggregate) Upgrade(uid string) *Upgrade {
	i := slices.IndexFunc(t.Upgrades, func(u *Upgrade) bool { return u.UID == uid })
	if i < 0 {
		return nil
	}
	return t.Upgrades[i]
}

// ActiveUpgrades returns the active upgrades in the order of their creation. The first may proceed; the others wait for it.
func (t *ClusterAggregate) ActiveUpgrades() []*Upgrade {
	var active []*Upgrade
	for _, u := range t.Upgrades {
		if u.Active() {
			active = append(active, u)
		}
	}
	slices.SortFunc(active, func(a, b *Upgrade) int {
		if c := a.CreateTime.Compare(b.CreateTime); c != 0 {
			return c
		}
		return strings.Compare(a.UID, b.UID)
	})
	return active
}

// ControlPlaneVersion returns the version that all parts of the control plane run: during a rollout, the version before it.
func (t *ClusterAggregate) ControlPlaneVersion() string {
	for _, u := range t.ActiveUpgrades() {
		if s := u.rollingOut(); s != nil {
			return s.GetFromVersion()
		}
	}
	return t.Cluster.Release.Version
}

// ForceUpgradeTo returns the release image of a step to another minor version that an SRE allowed although the cluster
// reports that it is not upgradeable; empty if there is none.
func (t *ClusterAggregate) ForceUpgradeTo() string {
	for _, u := range t.ActiveUpgrades() {
		s, gate := u.rollingOut(), u.gate(GateUpgradeable)
		if s != nil && crossesMinor(s) && gate.GetAcknowledgeTime() != nil {
			return s.GetToImage()
		}
	}
	return ""
}

// step returns the first step in a state, or nil.
func (u *Upgrade) step(state csv1.UpgradeStepState) *csv1.UpgradeStep {
	for _, s := range u.Status.GetSteps() {
		if s.GetState() == state {
			return s
		}
	}
	return nil
}

// rollingOut returns the step in which the control plane rolls out a release, or nil.
func (u *Upgrade) rollingOut() *csv1.UpgradeStep {
	if u == nil || !u.Active() {
		return nil
	}
	s := u.step(csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING)
	if s.GetKind() != csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE {
		return nil
	}
	return s
}

// nextControlPlaneStep returns the first planned step of the control plane, or nil.
func (u *Upgrade) nextControlPlaneStep() *csv1.UpgradeStep {
	for _, s := range u.Status.GetSteps() {
		if s.GetKind() == csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE && s.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED {
			return s
		}
	}
	return nil
}

func crossesMinor(s *csv1.UpgradeStep) bool {
	return minorsBetween(s.GetFromVersion(), s.GetToVersion()) != 0
}

// minorsBetween returns the number of minor versions from one version to another.
func minorsBetween(from, to string) int {
	a, err := release.ParseVersion(from)
	b, toErr := release.ParseVersion(to)
	if err != nil || toErr != nil {
		return 0
	}
	return b.Ordinal() - a.Ordinal()
}

// IsNewer reports whether a version is newer than another. It returns false for versions that it cannot parse.
func IsNewer(a, than string) bool {
	x, err := release.ParseVersion(a)
	y, thanErr := release.ParseVersion(than)
	return err == nil && thanErr == nil && x.Compare(y) > 0
}

// advanceUpgrades advances the active upgrades. If mayMove is set, it may give the control plane or a node pool its next
// release, and reports whether it did.
func (r Region) advanceUpgrades(now time.Time, t *ClusterAggregate, mayMove bool) (moved bool) {
	if t.Cluster == nil || t.Cluster.Deleting() {
		for _, u := range t.ActiveUpgrades() {
			u.end(now, csv1.UpgradeState_UPGRADE_STATE_CANCELED, "The cluster is deleted.")
		}
		return false
	}
	for {
		active := t.ActiveUpgrades()
		if len(active) == 0 {
			return moved
		}
		first := active[0]
		moved = r.advanceUpgrade(now, t, first, mayMove) || moved
		if !first.Active() {
			continue // the next has its turn
		}
		for _, u := range active[1:] {
			u.say(now, csv1.UpgradeState_UPGRADE_STATE_WAITING, "Waiting for upgrade "+first.UID+" to "+first.Spec.GetVersion()+", which was requested earlier.")
		}
		return moved
	}
}

func (r Region) advanceUpgrade(now time.Time, t *ClusterAggregate, u *Upgrade, mayMove bool) (moved bool) {
	for {
		var again bool
		switch u.State() {
		case csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE:
			again = followControlPlane(now, t, u)
		case csv1.UpgradeState_UPGRADE_STATE_WAITING:
			again, moved = r.beginControlPlane(now, t, u, mayMove)
		case csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS:
			return followNodePools(now, t, u, mayMove)
		}
		if !again {
			return moved
		}
	}
}

// beginControlPlane gives the control plane its next release if all gates have passed. again reports that the state changed
// without that.
func (r Region) beginControlPlane(now time.Time, t *ClusterAggregate, u *Upgrade, mayMove bool) (again, moved bool) {
	s := u.nextControlPlaneStep()
	if s == nil {
		u.say(now, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS, "All steps of the control plane are complete.")
		return true, false
	}
	if !IsNewer(s.GetToVersion(), t.Cluster.Release.Version) {
		finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_SKIPPED, "The control plane already has this version.")
		return true, false
	}
	s.FromVersion = t.Cluster.Release.Version
	waiting := u.EvaluateGates(now, t)
	switch {
	case u.Status.GetPaused():
		u.say(now, csv1.UpgradeState_UPGRADE_STATE_WAITING, "Paused by "+u.Status.GetPausedBy().GetName()+": "+u.Status.GetPausedBy().GetReason())
	case waiting != nil:
		u.say(now, csv1.UpgradeState_UPGRADE_STATE_WAITING, waiting.GetMessage())
	case !mayMove:
		u.say(now, csv1.UpgradeState_UPGRADE_STATE_WAITING, "The next step of the control plane is about to start.")
	default:
		t.Cluster.beginRelease(t)
		t.Cluster.Release = Release{Version: s.GetToVersion(), Image: s.GetToImage()}
		begin(now, s, "Cluster Service set the release of the control plane to "+s.GetToVersion()+".")
		s.ComponentsTime = timestamp(now.Add(r.ComponentsAfter))
		u.begun(now)
		u.say(now, csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, "The control plane is being upgraded from "+s.GetFromVersion()+" to "+s.GetToVersion()+".")
		return false, true
	}
	return false, false
}

// followControlPlane updates the progress of the control plane's step, and reports whether the step is complete.
func followControlPlane(now time.Time, t *ClusterAggregate, u *Upgrade) (again bool) {
	work, s := t.Work(HostedCluster, ""), u.step(csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING)
	switch {
	case s == nil:
		// A stored running step is always found. Without one there is nothing to follow.
		u.say(now, csv1.UpgradeState_UPGRADE_STATE_WAITING, "The next step is about to start.")
		return true
	case work == nil:
		return false
	case work.permanentlyRefused():
		u.end(now, csv1.UpgradeState_UPGRADE_STATE_FAILED, work.refuser()+" permanently rejects release "+s.GetToVersion()+": "+work.refusalText())
		return false
	}
	seen := &work.Observed
	if work.Applied() && rolledOut(t.Cluster.Release, seen) {
		finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_COMPLETED, "The control plane runs "+s.GetToVersion()+".")
		u.say(now, csv1.UpgradeState_UPGRADE_STATE_WAITING, "The control plane runs "+s.GetToVersion()+".")
		return true
	}
	s.Message = controlPlaneProgress(t.Cluster.Release, work)
	if followComponents(now, s, t.Work(RolloutWork, u.UID)); len(s.Components) > 0 {
		s.Message += " " + componentsMessage(s)
	}
	return false
}

// controlPlaneProgress describes the progress of a control plane's rollout.
func controlPlaneProgress(want Release, work *Work) string {
	seen := &work.Observed
	if !work.Applied() {
		return "Waiting for the agent of the management cluster to apply release " + want.Version + "."
	}
	if progressing := seen.Condition("Progressing"); progressing.Reason == "Blocked" {
		return "HyperShift blocks the rollout of release " + want.Version + ": " + progressing.Message
	}
	history := seen.ControlPlaneVersions
	if len(history) == 0 || history[0].Version != want.Version {
		return "Waiting for the control plane to start the rollout of " + want.Version + "."
	}
	message := "The control plane is rolling out " + want.Version + "."
	if degraded := seen.Condition("Degraded"); degraded.Status == "True" {
		message += " It is degraded: " + degraded.Message
	}
	return message
}

// followNodePools upgrades the node pools one after the other after the control plane.
func followNodePools(now time.Time, t *ClusterAggregate, u *Upgrade, mayMove bool) (moved bool) {
	u.planFollowers(t)
	for _, s := range u.Status.GetSteps() {
		if s.GetKind() != csv1.UpgradeStepKind_UPGRADE_STEP_KIND_NODE_POOL {
			continue
		}
		p := t.Pool(s.GetNodePoolUid())
		switch s.GetState() {
		case csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING:
			if followNodePool(now, t, u, s, p); s.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING || !u.Active() {
				return moved
			}
		case csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED:
			switch {
			case p == nil || p.Deleting():
				finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_SKIPPED, "The node pool is deleted or being deleted.")
			case !IsNewer(s.GetToVersion(), p.Release.Version):
				finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_SKIPPED, "The node pool already has this version.")
			case u.Status.GetPaused():
				u.say(now, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS, "Node pool "+s.GetNodePool()+" is next. Paused by "+u.Status.GetPausedBy().GetName()+": "+u.Status.GetPausedBy().GetReason())
				return moved
			case !mayMove:
				u.say(now, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS, "The upgrade of node pool "+s.GetNodePool()+" is about to start.")
				return moved
			default:
				s.FromVersion = p.Release.Version
				p.beginRelease(t)
				p.Release = Release{Version: s.GetToVersion(), Image: s.GetToImage()}
				begin(now, s, "Cluster Service set the release of the node pool to "+s.GetToVersion()+".")
				u.begun(now)
				u.say(now, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS, "Node pool "+s.GetNodePool()+" is being upgraded from "+s.GetFromVersion()+" to "+s.GetToVersion()+".")
				return true
			}
		}
	}
	u.end(now, csv1.UpgradeState_UPGRADE_STATE_COMPLETED, "The control plane and all node pools run "+u.Spec.GetVersion()+".")
	if n := u.left(t); n > 0 {
		u.Status.Message = fmt.Sprintf("The control plane runs %s; %d node pools are not part of the upgrade.", u.Spec.GetVersion(), n)
	}
	return moved
}

// left returns the number of node pools that are older than the control plane.
func (u *Upgrade) left(t *ClusterAggregate) (n int) {
	for _, p := range t.Pools {
		if !p.Deleting() && IsNewer(u.Spec.GetVersion(), p.Release.Version) {
			n++
		}
	}
	return n
}

// planFollowers adds steps for node pools that were created after the upgrade.
func (u *Upgrade) planFollowers(t *ClusterAggregate) {
	for _, p := range t.Pools {
		known := slices.ContainsFunc(u.Status.GetSteps(), func(s *csv1.UpgradeStep) bool { return s.GetNodePoolUid() == p.UID })
		if !known && Follows(u.Spec.GetNodePools(), p) && IsNewer(u.Spec.GetVersion(), p.Release.Version) {
			u.Status.Steps = append(u.Status.Steps, NodePoolStep(p, t.Cluster.Release))
		}
	}
}

// Follows reports whether an upgrade with this setting includes a node pool.
func Follows(which csv1.NodePoolFollow, p *NodePool) bool {
	switch {
	case p.Deleting():
		return false
	case which == csv1.NodePoolFollow_NODE_POOL_FOLLOW_UNPINNED:
		return p.Spec.GetVersion().GetId() == ""
	}
	return which == csv1.NodePoolFollow_NODE_POOL_FOLLOW_ALL
}

// NodePoolStep returns the planned step that upgrades a node pool to a release.
func NodePoolStep(p *NodePool, to Release) *csv1.UpgradeStep {
	return &csv1.UpgradeStep{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_NODE_POOL, NodePoolUid: p.UID, NodePool: p.Spec.GetName(),
		FromVersion: p.Release.Version, ToVersion: to.Version, ToImage: to.Image, State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED}
}

// followNodePool updates the progress of a node pool's step.
func followNodePool(now time.Time, t *ClusterAggregate, u *Upgrade, s *csv1.UpgradeStep, p *NodePool) {
	if p == nil || p.Deleting() {
		finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_SKIPPED, "The node pool is deleted or being deleted.")
		return
	}
	work := t.Work(NodePoolWork, p.UID)
	switch {
	case work == nil:
	case work.permanentlyRefused():
		u.end(now, csv1.UpgradeState_UPGRADE_STATE_FAILED, work.refuser()+" permanently rejects release "+s.GetToVersion()+" of node pool "+s.GetNodePool()+": "+work.refusalText())
	case IsNewer(s.GetToVersion(), p.Release.Version):
		finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_SKIPPED, "The node pool was returned to version "+p.Release.Version+".")
	case poolArrived(p, work):
		finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_COMPLETED, "The node pool runs "+p.Release.Version+".")
	case work.Observed.Condition(feedback.UpdatingVersion).Status == "True":
		s.Message = work.Observed.Condition(feedback.UpdatingVersion).Message
	default:
		s.Message = "Waiting for the node pool to start the rollout of release " + s.GetToVersion() + "."
	}
}

// poolArrived reports whether all nodes of a pool run its release.
func poolArrived(p *NodePool, work *Work) bool {
	seen := &work.Observed
	return work.Applied() && seen.Condition(feedback.UpdatingVersion).Status != "True" &&
		(seen.Version == p.Release.Version || seen.Replicas == 0 && seen.Image == p.Release.Image)
}

func begin(now time.Time, s *csv1.UpgradeStep, message string) {
	s.State, s.Message, s.StartTime = csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING, message, timestamp(now)
}

func finish(now time.Time, s *csv1.UpgradeStep, state csv1.UpgradeStepState, message string) {
	s.State, s.Message, s.CompletionTime = state, message, timestamp(now)
	s.Components, s.ComponentsTime = nil, nil
}

func (u *Upgrade) begun(now time.Time) {
	if u.Status.GetStartTime() == nil {
		u.Status.StartTime = timestamp(now)
	}
}

// say sets the state and the message. The time changes only if one of them does.
func (u *Upgrade) say(now time.Time, state csv1.UpgradeState, message string) {
	if u.Status.GetState() != state || u.Status.GetMessage() != message {
		u.Status.State, u.Status.Message, u.Status.Since = state, message, timestamp(now)
	}
}

// end ends the upgrade. A running step already has its release and continues without the upgrade; planned steps are
// skipped.
func (u *Upgrade) end(now time.Time, state csv1.UpgradeState, message string) {
	u.say(now, state, message)
	u.Status.CompletionTime, u.GoneTime = timestamp(now), now
	for _, s := range u.Status.GetSteps() {
		// The components are no longer read.
		s.Components, s.ComponentsTime = nil, nil
		if s.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED {
			finish(now, s, csv1.UpgradeStepState_UPGRADE_STEP_STATE_SKIPPED, "The upgrade ended before this step.")
		}
	}
}

// NeedsUpgrade reports whether the spec of a cluster requests a newer version than the release of its control plane.
func (c *Cluster) NeedsUpgrade() bool {
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

// customerWaitsForUpgrade reports whether the current generation takes full effect only with an upgrade.
func (t *ClusterAggregate) customerWaitsForUpgrade() bool {
	for _, u := range t.ActiveUpgrades() {
		if u.Spec.GetClusterGeneration() > 0 && (u.State() != csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS) {
			return true
		}
	}
	return t.Cluster.NeedsUpgrade()
}

// upgradeLayer returns the progress of the active upgrade. It returns nothing while the control plane rolls out a version
// that the customer requested, which the progress of the control plane shows. During other upgrades the cluster is ready,
// and only this entry shows what is awaited.
func upgradeLayer(t *ClusterAggregate) []layer {
	active := t.ActiveUpgrades()
	if len(active) == 0 {
		return nil
	}
	u := active[0]
	state, message := clusterstatus.StateWaiting, u.Status.GetMessage()
	switch moves := u.State() == csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE; {
	case moves && u.Spec.GetClusterGeneration() > 0:
		return nil
	case moves:
		state = clusterstatus.StateControlPlane
	case u.Status.GetPaused():
		state = clusterstatus.StatePaused
	case u.State() == csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS:
		state = clusterstatus.StateNodePools
	case slices.ContainsFunc(u.Status.GetGates(), func(g *csv1.UpgradeGate) bool {
		return g.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING && g.GetCanBeAcknowledged() && g.GetMessage() == message
	}):
		state = clusterstatus.StateAwaitingAcknowledgement
	}
	return []layer{{LayerUpgrade, state, "Upgrade " + u.UID + " to " + u.Spec.GetVersion() + ": " + message}}
}
