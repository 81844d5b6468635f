package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// The gates that an upgrade passes before its control plane is given the next release.
const (
	// GateNotBefore is the time that was asked for.
	GateNotBefore = "not-before"
	// GateClusterReady is a control plane that has arrived where it was sent before, and is available.
	GateClusterReady = "cluster-ready"
	// GateVersionSkew is that no node pool is left too far behind.
	GateVersionSkew = "version-skew"
	// GateUpgradeable is what the cluster itself says about another minor version.
	GateUpgradeable = "upgradeable"
	// GateMinorVersion is that somebody agrees to another minor version.
	GateMinorVersion = "minor-version"
	// gateRisk is followed by the name of a risk.
	gateRisk = "risk-"
)

// heldBack says that the management cluster has a release and does not begin with it: nothing moves, and what ran goes on.
func heldBack(work *Work) bool {
	history := work.Observed.ControlPlaneVersions
	if len(history) == 0 {
		history = work.Observed.Versions
	}
	return work.Applied() && work.Observed.Condition(feedback.Progressing).Reason == "Blocked" && len(history) > 0 && history[0].State == "Completed"
}

// MaxSkew is how many minor versions a node pool may be behind its control plane; HyperShift allows one more, which leaves
// the control plane one step ahead of a pool that is late.
const MaxSkew = 2

func (u *Upgrade) gate(name string) *csv1.UpgradeGate {
	i := slices.IndexFunc(u.Status.GetGates(), func(g *csv1.UpgradeGate) bool { return g.GetName() == name })
	if i < 0 {
		return nil
	}
	return u.Status.Gates[i]
}

// judgement is what is to be said of a gate.
type judgement struct {
	name, message string
	passed        bool
	// acknowledgeable says that somebody may take the responsibility.
	acknowledgeable bool
}

// EvaluateGates brings the gates of what is left for the control plane up to date, and returns the first that is not passed.
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

// judge looks at every gate of the control plane's steps that have not begun.
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
		list = append(list, judgement{name: GateNotBefore, passed: !now.Before(at.AsTime()), message: "It is not to begin before " + at.AsTime().UTC().Format(time.RFC3339) + "."})
	}
	list = append(list, judgeReady(t), judgeSkew(t, left[len(left)-1].GetToVersion()))
	if slices.ContainsFunc(left, crossesMinor) {
		to := left[len(left)-1].GetToVersion()
		list = append(list, judgeUpgradeable(t, left[0]), judgement{name: GateMinorVersion, acknowledgeable: true,
			message: "Going to another minor version, " + to + ", takes APIs away that workloads may still use; somebody has to agree to that."})
	}
	for _, s := range left {
		for _, risk := range s.GetRisks() {
			list = append(list, judgement{name: gateRisk + risk, acknowledgeable: true,
				message: fmt.Sprintf("The way from %s to %s has a known risk, %s; somebody has to accept it.", s.GetFromVersion(), s.GetToVersion(), risk)})
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
	case work.Refused, heldBack(work):
		j.passed = true
		j.message = "The control plane did not begin with " + t.Cluster.Release.Version + " and can be given a newer release."
	case !rolledOut(t.Cluster.Release, &work.Observed):
		j.message = "Waiting for the control plane to complete " + t.Cluster.Release.Version + "."
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
	return judgement{name: GateVersionSkew, message: fmt.Sprintf("A node pool may be %d minor versions behind its control plane. Behind %s by more are %s; upgrade them first.",
		MaxSkew, to, strings.Join(behind, ", "))}
}

// PoolsTooFarBehind names the node pools that a control plane of a version would leave too far behind.
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

// judgeUpgradeable asks the cluster just before the step to another minor version.
func judgeUpgradeable(t *ClusterAggregate, next *csv1.UpgradeStep) judgement {
	j := judgement{name: GateUpgradeable, acknowledgeable: true}
	if !crossesMinor(next) {
		j.passed, j.message = true, "The cluster is asked before the step to another minor version."
		return j
	}
	var seen feedback.Condition
	if work := t.Work(HostedCluster, ""); work != nil {
		seen = work.Observed.Condition(feedback.Upgradeable)
	}
	// A cluster that says nothing has nothing against it; HyperShift reads it the same way.
	j.passed = seen.Status != "False"
	j.message = "The cluster has nothing against another minor version."
	if !j.passed {
		j.message = "The cluster says that it is not ready for another minor version: " + strings.TrimSpace(seen.Reason+" "+seen.Message)
	}
	return j
}

// UpgradeRefusal is why something that was asked of an upgrade is not done.
type UpgradeRefusal struct {
	// Rule is a word in capitals.
	Rule string
	// Message says what would be allowed.
	Message string
}

// Error is the message.
func (r *UpgradeRefusal) Error() string { return r.Message }

// The rules about upgrades.
const (
	RuleUpgradeEnded          = "UPGRADE_ENDED"
	RuleUpgradeMoving         = "UPGRADE_MOVING"
	RuleGateUnknown           = "GATE_UNKNOWN"
	RuleGateNotAcknowledgable = "GATE_NOT_ACKNOWLEDGEABLE"
	RuleClusterNotInstalled   = "CLUSTER_NOT_INSTALLED"
	RuleUpgradeInProgress     = "UPGRADE_IN_PROGRESS"
	RuleVersionUnknown        = "VERSION_UNKNOWN"
	RuleVersionNotNewer       = "VERSION_NOT_NEWER"
	RuleMinorSkipped          = "MINOR_VERSION_SKIPPED"
	RuleNoUpdatePath          = "NO_UPDATE_PATH"
	RuleVersionSkew           = "VERSION_SKEW"
)

func (u *Upgrade) refuseEnded() error {
	if u.Active() {
		return nil
	}
	return &UpgradeRefusal{RuleUpgradeEnded, "The upgrade came to its end: " + u.Status.GetMessage()}
}

// lastStep says that the control plane moves and that nothing of the upgrade comes after that.
func (u *Upgrade) lastStep(t *ClusterAggregate) bool {
	if u.State() != csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE || u.step(csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED) != nil {
		return false
	}
	return !slices.ContainsFunc(t.Pools, func(p *NodePool) bool {
		return Follows(u.Spec.GetNodePools(), p) && IsNewer(u.Spec.GetVersion(), p.Release.Version)
	})
}

// Pause holds an upgrade.
func (u *Upgrade) Pause(t *ClusterAggregate, actor *csv1.Actor) error {
	if err := u.refuseEnded(); err != nil {
		return err
	}
	if u.Status.GetPaused() {
		return nil
	}
	if u.lastStep(t) {
		return &UpgradeRefusal{RuleUpgradeMoving, "The control plane rolls out " + t.Cluster.Release.Version +
			", which HyperShift can neither hold nor take back, and nothing comes after it that could be paused. Before a control plane begins, and before its node pools follow, an upgrade can be paused."}
	}
	u.Status.Paused, u.Status.PausedBy = true, actor
	return nil
}

// Resume lets a paused upgrade go on.
func (u *Upgrade) Resume() error {
	if err := u.refuseEnded(); err != nil {
		return err
	}
	u.Status.Paused, u.Status.PausedBy = false, nil
	return nil
}

// Abort gives an upgrade up.
func (u *Upgrade) Abort(now time.Time, t *ClusterAggregate, actor *csv1.Actor) error {
	if u.State() == csv1.UpgradeState_UPGRADE_STATE_ABORTED {
		return nil
	}
	if err := u.refuseEnded(); err != nil {
		return err
	}
	if work := t.Work(HostedCluster, ""); u.State() == csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE && (work == nil || !heldBack(work)) {
		return &UpgradeRefusal{RuleUpgradeMoving, "The control plane goes to " + t.Cluster.Release.Version +
			", and nothing lowers a version. What comes after it can be paused now and aborted when the control plane has arrived."}
	}
	u.Status.AbortedBy = actor
	u.end(now, csv1.UpgradeState_UPGRADE_STATE_ABORTED, "Given up by "+actor.GetName()+": "+actor.GetReason())
	return nil
}

// Acknowledge passes a gate.
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
		return &UpgradeRefusal{RuleGateUnknown, fmt.Sprintf("The upgrade has no gate %q before it. Gates that wait for an acknowledgement: %s.", name, orNone(names))}
	case !g.GetCanBeAcknowledged():
		return &UpgradeRefusal{RuleGateNotAcknowledgable, fmt.Sprintf("Gate %s is passed when what it waits for is so, not by acknowledging it: %s", name, g.GetMessage())}
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

// Withdraw cancels an upgrade that has not begun.
func (u *Upgrade) Withdraw(now time.Time, why string) {
	if u.Active() && !u.Begun() {
		u.end(now, csv1.UpgradeState_UPGRADE_STATE_CANCELED, why)
	}
}
