package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/upgradeplan"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// images renders to what decides the content of an upgrade: the releases.
type images struct{}

func (images) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	if p := t.Pool(w.OwnerUID); p != nil {
		return p.Release.Image, nil
	}
	return t.Cluster.Release.Image + t.ForceUpgradeTo(), nil
}

var actor = &csv1.Actor{Name: "ada", Reason: "a fix"}

// world is an aggregate whose management cluster does what it is told.
type world struct {
	*testing.T
	*fleet.ClusterAggregate
	releases *release.Catalog
	now      time.Time
	// wrong is what must never happen: versions that were lowered, node pools ahead of their control plane.
	wrong []string
}

// newWorld makes a ready cluster of a version with two node pools of it.
func newWorld(t *testing.T, version string) *world {
	t.Helper()
	releases, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, releases: releases, now: start}
	known, _ := releases.Exact(version)
	own := fleet.Release{Version: version, Image: known.Image}
	w.ClusterAggregate = &fleet.ClusterAggregate{Cluster: &fleet.Cluster{UID: clusterUID, Generation: 1, Shard: "mgmt-1", CreateTime: start, Release: own,
		Spec:   &csv1.ClusterSpec{Name: "c", Version: &csv1.Version{Id: version[:4], ChannelGroup: "stable"}},
		Status: &csv1.ClusterStatus{ClusterId: fleet.ClusterID(clusterUID), BaseDomainPrefix: "p"}}}
	for _, name := range []string{"a", "b"} {
		w.Pools = append(w.Pools, &fleet.NodePool{UID: poolUID[:35] + name, ClusterUID: clusterUID, Generation: 1, Release: own,
			Spec: &csv1.NodePoolSpec{Name: name, Size: &csv1.NodePoolSpec_Replicas{Replicas: 1}}, Status: &csv1.NodePoolStatus{}})
	}
	w.settle()
	w.report(fleet.HostedCluster, "", true)
	for _, p := range w.Pools {
		w.report(fleet.NodePoolWork, p.UID, true)
	}
	w.settle()
	if w.Cluster.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY {
		t.Fatalf("the cluster is %v", w.Cluster.Status)
	}
	return w
}

func (w *world) settle() {
	w.Helper()
	before := w.Clone()
	if err := region.Settle(w.now, w.ClusterAggregate, images{}); err != nil {
		w.Fatal(err)
	}
	lower := func(what, was, is string) {
		a, _ := release.ParseVersion(was)
		b, _ := release.ParseVersion(is)
		if was != "" && b.Compare(a) < 0 {
			w.wrong = append(w.wrong, fmt.Sprintf("%s from %s to %s", what, was, is))
		}
	}
	if before.Cluster != nil && w.Cluster != nil {
		lower("the control plane", before.Cluster.Release.Version, w.Cluster.Release.Version)
	}
	for _, p := range w.Pools {
		if old := before.Pool(p.UID); old != nil {
			lower("node pool "+p.Spec.GetName(), old.Release.Version, p.Release.Version)
		}
		a, _ := release.ParseVersion(p.Release.Version)
		b, _ := release.ParseVersion(w.ControlPlaneVersion())
		if a.Compare(b) > 0 {
			w.wrong = append(w.wrong, fmt.Sprintf("node pool %s at %s is ahead of %s", p.Spec.GetName(), a, b))
		}
	}
}

// report has the management cluster carry what a work wants, and complete it or not.
func (w *world) report(kind fleet.WorkKind, owner string, complete bool) {
	work := w.Work(kind, owner)
	work.Published = work.Desired
	o := &work.Observed
	o.Applied, o.Digest = feedback.Condition{Status: "True"}, work.Digest
	if o.Conditions == nil {
		o.Conditions = map[string]feedback.Condition{feedback.Available: {Status: "True", Reason: "AsExpected"}}
	}
	state, updating := "Partial", "True"
	if complete {
		state, updating = "Completed", "False"
	}
	if kind == fleet.NodePoolWork {
		p := w.Pool(owner)
		o.Conditions[feedback.UpdatingVersion] = feedback.Condition{Status: updating}
		o.Conditions[feedback.AllMachines] = feedback.Condition{Status: "True"}
		o.Replicas, o.Image = 1, p.Release.Image
		if complete {
			o.Version = p.Release.Version
		}
		return
	}
	o.EndpointHost, o.EndpointPort, o.Image = "127.0.0.1", 6443, w.Cluster.Release.Image
	entry := feedback.Release{Version: w.Cluster.Release.Version, Image: w.Cluster.Release.Image, State: state}
	o.ControlPlaneVersions = slices.DeleteFunc(o.ControlPlaneVersions, func(r feedback.Release) bool { return r.Version == entry.Version })
	o.ControlPlaneVersions = append([]feedback.Release{entry}, o.ControlPlaneVersions...)
}

// begin starts an upgrade that everything is agreed to of.
func (w *world) begin(version string, follow csv1.NodePoolFollow, gates ...string) *fleet.Upgrade {
	w.Helper()
	plan := upgradeplan.Plan(w.now, w.ClusterAggregate, w.releases, version, follow)
	if len(plan.GetRefusals()) > 0 {
		w.Fatal(plan.GetRefusals())
	}
	u := fleet.NewUpgrade("u-"+version, clusterUID, &csv1.UpgradeSpec{Version: version, NodePools: follow, Actor: actor}, plan.GetFromVersion(), plan.GetSteps(), w.now)
	w.Upgrades = append(w.Upgrades, u)
	for _, gate := range gates {
		if err := u.Acknowledge(w.now, w.ClusterAggregate, gate, actor); err != nil {
			w.Fatal(err)
		}
	}
	w.settle()
	return u
}

func (w *world) is(u *fleet.Upgrade, state csv1.UpgradeState, message string) {
	w.Helper()
	if u.State() != state || !strings.Contains(u.Status.GetMessage(), message) {
		w.Fatalf("the upgrade is %s: %s; want %s: %s", u.State(), u.Status.GetMessage(), state, message)
	}
}

const (
	followAll = csv1.NodePoolFollow_NODE_POOL_FOLLOW_ALL
	stateWait = csv1.UpgradeState_UPGRADE_STATE_WAITING
	stateCP   = csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE
	stateNP   = csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS
	stateDone = csv1.UpgradeState_UPGRADE_STATE_COMPLETED
)

// TestUpgradeLife walks an upgrade through all of its steps; each waits for the one before.
func TestUpgradeLife(t *testing.T) {
	w := newWorld(t, "4.20.8")
	u := w.begin("4.21.4", followAll, fleet.GateMinorVersion)
	w.is(u, stateCP, "from 4.20.8 to 4.20.16")
	w.settle()
	w.report(fleet.HostedCluster, "", false)
	w.settle()
	w.is(u, stateCP, "from 4.20.8 to 4.20.16")
	if got := w.ControlPlaneVersion(); got != "4.20.8" {
		t.Errorf("while it moves the control plane counts as %s", got)
	}
	w.report(fleet.HostedCluster, "", true)
	w.settle()
	w.is(u, stateCP, "from 4.20.16 to 4.21.4")
	w.report(fleet.HostedCluster, "", true)
	w.settle()
	w.is(u, stateNP, "Node pool a is being upgraded from 4.20.8 to 4.21.4")
	if w.Pools[1].Release.Version != "4.20.8" {
		t.Error("both node pools go at once")
	}
	w.report(fleet.NodePoolWork, w.Pools[0].UID, false)
	w.settle()
	w.is(u, stateNP, "Node pool a is being upgraded")
	w.report(fleet.NodePoolWork, w.Pools[0].UID, true)
	w.settle()
	w.is(u, stateNP, "Node pool b is being upgraded")
	w.report(fleet.NodePoolWork, w.Pools[1].UID, true)
	w.settle()
	w.is(u, stateDone, "The control plane and all node pools run 4.21.4")
	if !u.Gone() || u.Status.GetCompletionTime() == nil || w.Cluster.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY {
		t.Errorf("at its end: %v, the cluster %v", u.Status, w.Cluster.Status.GetPhase())
	}
	if len(w.wrong) > 0 {
		t.Error(w.wrong)
	}
}

// TestGates: each keeps the control plane from its next release until what it waits for is so.
func TestGates(t *testing.T) {
	tests := map[string]struct {
		reason, gate string
		shut         func(*world)
		open         func(*world, *fleet.Upgrade)
		late         time.Duration
	}{
		"Not before": {reason: "its time has not come", gate: fleet.GateNotBefore, late: time.Hour,
			open: func(w *world, _ *fleet.Upgrade) { w.now = w.now.Add(time.Hour) }},
		"Unavailable": {reason: "what does not work is not upgraded", gate: fleet.GateClusterReady,
			shut: func(w *world) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Available] = feedback.Condition{Status: "False", Message: "etcd has no quorum"}
			},
			open: func(w *world, _ *fleet.Upgrade) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Available] = feedback.Condition{Status: "True"}
			}},
		"Not upgradeable": {reason: "the cluster says so", gate: fleet.GateUpgradeable,
			shut: func(w *world) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Upgradeable] = feedback.Condition{Status: "False", Reason: "AdminAckRequired"}
			},
			open: func(w *world, _ *fleet.Upgrade) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Upgradeable] = feedback.Condition{Status: "True"}
			}},
		"Skew": {reason: "a node pool would be left behind", gate: fleet.GateVersionSkew,
			shut: func(w *world) { w.Pools[0].Release.Version = "4.18.9" },
			open: func(w *world, _ *fleet.Upgrade) { w.Pools[0].Release.Version = "4.19.20" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "4.20.16")
			plan := upgradeplan.Plan(w.now, w.ClusterAggregate, w.releases, "4.21.4", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
			spec := &csv1.UpgradeSpec{Version: "4.21.4"}
			if tc.late > 0 {
				spec.NotBefore = timestamppb.New(w.now.Add(tc.late))
			}
			u := fleet.NewUpgrade("u", clusterUID, spec, "4.20.16", plan.GetSteps(), w.now)
			w.Upgrades = append(w.Upgrades, u)
			if err := u.Acknowledge(w.now, w.ClusterAggregate, fleet.GateMinorVersion, actor); err != nil {
				t.Fatal(err)
			}
			if tc.shut != nil {
				tc.shut(w)
			}
			w.settle()
			if u.State() != stateWait {
				t.Fatalf("%s: the upgrade is %s", tc.reason, u.Status)
			}
			for _, g := range u.Status.GetGates() {
				if waits := g.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING; waits != (g.GetName() == tc.gate) {
					t.Errorf("%s: gate %v", tc.reason, g)
				}
			}
			tc.open(w, u)
			w.settle()
			w.is(u, stateCP, "from 4.20.16 to 4.21.4")
		})
	}
}

// TestForce: whoever takes the responsibility for a cluster that is not ready has HyperShift told.
func TestForce(t *testing.T) {
	w := newWorld(t, "4.20.16")
	w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Upgradeable] = feedback.Condition{Status: "False", Reason: "AdminAckRequired"}
	u := w.begin("4.21.4", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE, fleet.GateMinorVersion)
	w.is(u, stateWait, "not ready for another minor version")
	if err := u.Acknowledge(w.now, w.ClusterAggregate, fleet.GateUpgradeable, actor); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.is(u, stateCP, "")
	if got := w.ForceUpgradeTo(); got != w.Cluster.Release.Image {
		t.Errorf("forced to %q", got)
	}
}

// TestHeldBack: a release that HyperShift does not begin with can be given up, and a newer one begun with. What was given is
// not taken back.
func TestHeldBack(t *testing.T) {
	w := newWorld(t, "4.20.8")
	u := w.begin("4.20.15", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
	work := w.Work(fleet.HostedCluster, "")
	work.Published, work.Observed.Digest = work.Desired, work.Digest
	w.settle()
	if err := u.Abort(w.now, w.ClusterAggregate, actor); err == nil {
		t.Fatal("given up while it may begin at any moment")
	}
	work.Observed.Conditions[feedback.Progressing] = feedback.Condition{Status: "False", Reason: "Blocked", Message: "ValidReleaseImage condition is false"}
	w.settle()
	if message := u.Status.GetSteps()[0].GetMessage(); !strings.Contains(message, "HyperShift blocks the rollout of release 4.20.15: ValidReleaseImage") {
		t.Errorf("the step says %q", message)
	}
	if err := u.Abort(w.now, w.ClusterAggregate, actor); err != nil {
		t.Fatal(err)
	}
	w.settle()
	next := w.begin("4.20.16", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
	w.is(next, stateCP, "from 4.20.15 to 4.20.16")
	delete(work.Observed.Conditions, feedback.Progressing)
	w.report(fleet.HostedCluster, "", true)
	w.settle()
	w.is(next, stateDone, "4.20.16")
	if len(w.wrong) > 0 {
		t.Error(w.wrong)
	}
}

// TestUpgradesEnd: what ends them, and what that leaves.
func TestUpgradesEnd(t *testing.T) {
	tests := map[string]struct {
		reason string
		end    func(*world, *fleet.Upgrade)
		state  csv1.UpgradeState
		says   string
	}{
		"Deleted": {"the cluster goes", func(w *world, _ *fleet.Upgrade) { w.Cluster.DeleteTime = w.now }, csv1.UpgradeState_UPGRADE_STATE_CANCELED, "deleted"},
		"Refused": {"Maestro will not take it", func(w *world, _ *fleet.Upgrade) {
			work := w.Work(fleet.HostedCluster, "")
			work.Refused, work.Error = true, "no such image"
		}, csv1.UpgradeState_UPGRADE_STATE_FAILED, "no such image"},
		"Pools gone": {"nothing is left to follow", func(w *world, _ *fleet.Upgrade) {
			w.report(fleet.HostedCluster, "", true)
			for _, p := range w.Pools {
				p.DeleteTime = w.now
			}
		}, stateDone, "4.20.16"},
		"Pool ahead": {"a node pool went by itself", func(w *world, _ *fleet.Upgrade) {
			w.report(fleet.HostedCluster, "", true)
			w.Pools[1].Release = w.Cluster.Release
			w.settle()
			w.report(fleet.NodePoolWork, w.Pools[0].UID, true)
		}, stateDone, "4.20.16"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "4.20.15")
			u := w.begin("4.20.16", followAll)
			tc.end(w, u)
			w.settle()
			w.is(u, tc.state, tc.says)
			for _, s := range u.Status.GetSteps() {
				if s.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED {
					t.Errorf("%s: a step is still planned: %v", tc.reason, s)
				}
			}
		})
	}
}

// TestTargets: where a cluster can go, and over what.
func TestTargets(t *testing.T) {
	w := newWorld(t, "4.20.8")
	got := map[string]string{}
	var order []string
	for _, target := range upgradeplan.Targets(w.Cluster, w.releases) {
		got[target.GetVersion()] = strings.Join(target.GetPath(), " ") + " " + strings.Join(target.GetRisks(), " ")
		order = append(order, target.GetVersion())
	}
	if diff := cmp.Diff([]string{"4.21.4", "4.21.1", "4.20.16", "4.20.15"}, order); diff != "" {
		t.Error(diff)
	}
	if got["4.21.4"] != "4.20.16 4.21.4 " || got["4.21.1"] != "4.21.1 KubeletLeaksMounts" {
		t.Errorf("ways: %q", got)
	}
}
