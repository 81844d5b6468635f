package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// The gates that must pass before the control plane gets its next release.
const (
	// GateNotBefore waits for the requested start time.
	GateNotBefore = "not-before"
	// GateClusterReady waits until the control plane runs its current release and is available.
	GateClusterReady = "cluster-ready"
	// GateVersionSkew waits until no node pool would be too many minor versions behind.
	GateVersionSkew = "version-skew"
	// GateUpgradeable waits until the cluster reports that it is ready for another minor version.
	GateUpgradeable = "upgradeable"
	// GateMinorVersion waits for the consent to another minor version.
	GateMinorVersion = "minor-version"
	// gateRisk is the prefix of the gate for a risk, followed by the name of the risk.
	gateRisk = "risk-"
)

// heldBack reports whether the management cluster has the release and does not start its rollout. A paused control plane is not held
// back, although HyperShift reports the same reason: it starts the rollout when the pause ends.
func heldBack(work *Work) bool {
	history := work.Observed.ControlPlaneVersions
	if len(history) == 0 {
		history = work.Observed.Versions
	}
	return work.Applied() && !work.Observed.Paused() && work.Observed.Condition(feedback.Progressing).Reason == "Blocked" && len(history) > 0 && history[0].State == "Completed"
}

// MaxSkew is the number of minor versions that a node pool may be behind its control plane. HyperShift allows one more, so
// the control plane can be one step ahead of a late pool.
const MaxSkew = 2

func (u *Upgrade) gate(name string) *csv1.UpgradeGate {
	i := slices.IndexFunc(u.Status.GetGates(), func(g *csv1.UpgradeGate) bool { return g.GetName() == name })
	if i < 0 {
		return nil
	}
	return u.Status.Gates[i]
}

// judgement is the evaluation of one gate.
type judgement struct {
	name, message string
	passed        bool
	// acknowledgeable reports whether an SRE may acknowledge the gate.
	acknowledgeable bool
}

// EvaluateGates evaluates the gates of the planned control plane steps, and returns the first that has not passed.
func (u *Upgrade) EvaluateGates(now time.Time, t *ClusterAggregate) (waiting *csv1.UpgradeGate) {
	var gates []*csv1.UpgradeGate
	for _, j := range judge(now, t, u) {
		g := &csv1.UpgradeGate{Name: j.name, Message: j.message, CanBeAcknowledged: j.acknowledgeable, State: csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING}
		if before := u.gate(j.name); before != nil {
			g.AcknowledgedBy, g.AcknowledgeTime = before.GetAcknowledgedBy(), before.GetAcknowledgeTime()
		}
		switch {
		case j.passed:
			g.State = csv1.UpgradeGateState_UPGRADE_GATE_STATE_PASSED
		case j.acknowledgeable && g.GetAcknowledgeTime() != nil:
			g.State = csv1.UpgradeGateState_UPGRADE_GATE_STATE_ACKNOWLEDGED
		case waiting == nil:
			waiting = g
		}
		gates = append(gates, g)
	}
	u.Status.Gates = gates
	return waiting
}

// judge evaluates every gate of the planned control plane steps.
func judge(now time.Time, t *ClusterAggregate, u *Upgrade) []judgement {
	var list []judgement
	var left []*csv1.UpgradeStep
	for _, s := range u.Status.GetSteps() {
		if s.GetKind() == csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE && s.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		return nil
	}
	if at := u.Spec.GetNotBefore(); at != nil {
		list = append(list, judgement{name: GateNotBefore, passed: !now.Before(at.AsTime()), message: "The upgrade must not start before " + at.AsTime().UTC().Format(time.RFC3339) + "."})
	}
	list = append(list, judgeReady(t), judgeSkew(t, left[len(left)-1].GetToVersion()))
	if slices.ContainsFunc(left, crossesMinor) {
		to := left[len(left)-1].GetToVersion()
		list = append(list, judgeUpgradeable(t, left[0]), judgement{name: GateMinorVersion, acknowledgeable: true,
			message: "The upgrade to another minor version, " + to + ", removes APIs that workloads may still use. An SRE must acknowledge this gate."})
	}
	for _, s := range left {
		for _, risk := range s.GetRisks() {
			list = append(list, judgement{name: gateRisk + risk, acknowledgeable: true,
				message: fmt.Sprintf("The update from %s to %s has the known risk %s. An SRE must acknowledge this gate.", s.GetFromVersion(), s.GetToVersion(), risk)})
		}
	}
	return list
}

func judgeReady(t *ClusterAggregate) judgement {
	j := judgement{name: GateClusterReady, message: "The control plane runs " + t.Cluster.Release.Version + " and is available."}
	work := t.Work(HostedCluster, "")
	switch {
	case work == nil || t.Cluster.Status.GetObservedGeneration() == 0:
		j.message = "Waiting for the cluster to be installed."
	case work.permanentlyRefused(), heldBack(work):
		j.passed = true
		j.message = "The control plane did not start the rollout of " + t.Cluster.Release.Version + " and accepts a newer release."
	case !rolledOut(t.Cluster.Release, &work.Observed):
		j.message = "Waiting for the control plane to complete the rollout of " + t.Cluster.Release.Version + "."
	case work.Observed.Condition(feedback.Available).Status != "True":
		j.message = "Waiting for the control plane to be available: " + work.Observed.Condition(feedback.Available).Message
	default:
		j.passed = true
	}
	return j
}

func judgeSkew(t *ClusterAggregate, to string) judgement {
	behind := PoolsTooFarBehind(t, to)
	if len(behind) == 0 {
		return judgement{name: GateVersionSkew, passed: true, message: fmt.Sprintf("No node pool is more than %d minor versions behind %s.", MaxSkew, to)}
	}
	return judgement{name: GateVersionSkew, message: fmt.Sprintf("A node pool may be at most %d minor versions behind its control plane. Too far behind %s: %s. Upgrade these node pools first.",
		MaxSkew, to, strings.Join(behind, ", "))}
}

// PoolsTooFarBehind returns the names of the node pools that a control plane of a version would leave too far behind.
func PoolsTooFarBehind(t *ClusterAggregate, version string) []string {
	var behind []string
	for _, p := range t.Pools {
		if !p.Deleting() && minorsBetween(p.Release.Version, version) > MaxSkew {
			behind = append(behind, fmt.Sprintf("%s (%s)", p.Spec.GetName(), p.Release.Version))
		}
	}
	slices.Sort(behind)
	return behind
}

// judgeUpgradeable evaluates the cluster's own condition directly before a step to another minor version.
func judgeUpgradeable(t *ClusterAggregate, next *csv1.UpgradeStep) judgement {
	j := judgement{name: GateUpgradeable, acknowledgeable: true}
	if !crossesMinor(next) {
		j.passed, j.message = true, "The cluster's Upgradeable condition is evaluated directly before the step to another minor version."
		return j
	}
	var seen feedback.Condition
	if work := t.Work(HostedCluster, ""); work != nil {
		seen = work.Observed.Condition(feedback.Upgradeable)
	}
	// A cluster without the condition is upgradeable, as HyperShift defines it.
	j.passed = seen.Status != "False"
	j.message = "The cluster reports no obstacle to another minor version."
	if !j.passed {
		j.message = "The cluster reports that it is not ready for another minor version: " + strings.TrimSpace(seen.Reason+" "+seen.Message)
	}
	return j
}

// UpgradeRefusal is the error of a refused action on an upgrade.
type UpgradeRefusal struct {
	// Rule is the reason of the error in the API.
	Rule string
	// Message states what is allowed.
	Message string
}

// Error returns the message.
func (r *UpgradeRefusal) Error() string { return r.Message }

// The rules for upgrades.
const (
	RuleUpgradeEnded          = "UPGRADE_ENDED"
	RuleUpgradeMoving         = "UPGRADE_MOVING"
	RuleGateUnknown           = "GATE_UNKNOWN"
	RuleGateNotAcknowledgable = "GATE_NOT_ACKNOWLEDGEABLE"
	RuleClusterNotInstalled   = "CLUSTER_NOT_INSTALLED"
	RuleUpgradeInProgress     = "UPGRADE_IN_PROGRESS"
	RuleVersionUnknown        = "VERSION_UNKNOWN"
	RuleReleaseRefused        = "RELEASE_REFUSED"
	RuleVersionNotNewer       = "VERSION_NOT_NEWER"
	RuleMinorSkipped          = "MINOR_VERSION_SKIPPED"
	RuleNoUpdatePath          = "NO_UPDATE_PATH"
	RuleVersionSkew           = "VERSION_SKEW"
)

func (u *Upgrade) refuseEnded() error {
	if u.Active() {
		return nil
	}
	return &UpgradeRefusal{RuleUpgradeEnded, "The upgrade has ended: " + u.Status.GetMessage()}
}

// lastStep reports whether the control plane rolls out its last release and no node pool follows.
func (u *Upgrade) lastStep(t *ClusterAggregate) bool {
	if u.State() != csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE || u.step(csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED) != nil {
		return false
	}
	return !slices.ContainsFunc(t.Pools, func(p *NodePool) bool {
		return Follows(u.Spec.GetNodePools(), p) && IsNewer(u.Spec.GetVersion(), p.Release.Version)
	})
}

// Pause pauses an upgrade. A running step continues.
func (u *Upgrade) Pause(t *ClusterAggregate, actor *csv1.Actor) error {
	if err := u.refuseEnded(); err != nil {
		return err
	}
	if u.Status.GetPaused() {
		return nil
	}
	if u.lastStep(t) {
		return &UpgradeRefusal{RuleUpgradeMoving, "The control plane is rolling out " + t.Cluster.Release.Version +
			", which HyperShift cannot pause or revert, and no step follows. An upgrade can be paused before a step of the control plane or of a node pool starts."}
	}
	u.Status.Paused, u.Status.PausedBy = true, actor
	return nil
}

// Resume resumes a paused upgrade.
func (u *Upgrade) Resume() error {
	if err := u.refuseEnded(); err != nil {
		return err
	}
	u.Status.Paused, u.Status.PausedBy = false, nil
	return nil
}

// Abort aborts an upgrade that rolls nothing out on the control plane.
func (u *Upgrade) Abort(now time.Time, t *ClusterAggregate, actor *csv1.Actor) error {
	if u.State() == csv1.UpgradeState_UPGRADE_STATE_ABORTED {
		return nil
	}
	if err := u.refuseEnded(); err != nil {
		return err
	}
	if work := t.Work(HostedCluster, ""); u.State() == csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE && (work == nil || !heldBack(work)) {
		return &UpgradeRefusal{RuleUpgradeMoving, "The control plane is being upgraded to " + t.Cluster.Release.Version +
			", and a version cannot be lowered. Pause the upgrade now to hold the steps that follow, and abort it after the control plane runs this version."}
	}
	u.Status.AbortedBy = actor
	u.end(now, csv1.UpgradeState_UPGRADE_STATE_ABORTED, "Aborted by "+actor.GetName()+": "+actor.GetReason())
	return nil
}

// Acknowledge acknowledges a gate.
func (u *Upgrade) Acknowledge(now time.Time, t *ClusterAggregate, name string, actor *csv1.Actor) error {
	if err := u.refuseEnded(); err != nil {
		return err
	}
	u.EvaluateGates(now, t)
	g := u.gate(name)
	switch {
	case g == nil:
		var names []string
		for _, known := range u.Status.GetGates() {
			if known.GetCanBeAcknowledged() && known.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING {
				names = append(names, known.GetName())
			}
		}
		return &UpgradeRefusal{RuleGateUnknown, fmt.Sprintf("The upgrade has no gate %q. Gates that wait for an acknowledgement: %s.", name, orNone(names))}
	case !g.GetCanBeAcknowledged():
		return &UpgradeRefusal{RuleGateNotAcknowledgable, fmt.Sprintf("Gate %s cannot be acknowledged. It passes when its condition is met: %s", name, g.GetMessage())}
	case g.GetAcknowledgeTime() == nil:
		g.AcknowledgedBy, g.AcknowledgeTime = actor, timestamp(now)
	}
	return nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Withdraw cancels an upgrade that has not started.
func (u *Upgrade) Withdraw(now time.Time, why string) {
	if u.Active() && !u.Begun() {
		u.end(now, csv1.UpgradeState_UPGRADE_STATE_CANCELED, why)
	}
}
