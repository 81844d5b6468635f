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
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// images is a Renderer whose digests depend on the releases only.
type images struct{}

func (images) OmittedRanges(*fleet.Cluster) []string { return nil }

func (images) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	if p := t.Pool(w.OwnerUID); p != nil {
		return p.Release.Image, nil
	}
	return t.Cluster.Release.Image + t.ForceUpgradeTo(), nil
}

var actor = &csv1.Actor{Name: "ada", Reason: "a fix"}

// world is an aggregate with a simulated management cluster.
type world struct {
	*testing.T
	*fleet.ClusterAggregate
	releases *release.Catalog
	now      time.Time
	// wrong lists violations: lowered versions, and node pools ahead of their control plane.
	wrong []string
}

// newWorld returns a ready cluster with two node pools, all of one version.
func newWorld(t *testing.T, version string) *world {
	t.Helper()
	releases := must.Get(release.Default())(t)
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
	must.Do(w, region.Settle(w.now, w.ClusterAggregate, images{}))
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

// report makes the management cluster report the desired state of a work as applied, and complete or not.
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

// begin starts an upgrade and acknowledges gates of it.
func (w *world) begin(version string, follow csv1.NodePoolFollow, gates ...string) *fleet.Upgrade {
	w.Helper()
	plan := upgradeplan.Plan(w.now, w.ClusterAggregate, w.releases, version, follow)
	if len(plan.GetRefusals()) > 0 {
		w.Fatal(plan.GetRefusals())
	}
	u := fleet.NewUpgrade("u-"+version, clusterUID, &csv1.UpgradeSpec{Version: version, NodePools: follow, Actor: actor}, plan.GetFromVersion(), plan.GetSteps(), w.now)
	w.Upgrades = append(w.Upgrades, u)
	for _, gate := range gates {
		must.Do(w, u.Acknowledge(w.now, w.ClusterAggregate, gate, actor))
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

// TestUpgradeStepsRunOneByOne runs all steps of an upgrade. Each step starts after the previous step is complete.
func TestUpgradeStepsRunOneByOne(t *testing.T) {
	w := newWorld(t, "4.20.8")
	u := w.begin("4.21.4", followAll, fleet.GateMinorVersion)
	w.is(u, stateCP, "from 4.20.8 to 4.20.16")
	w.settle()
	w.report(fleet.HostedCluster, "", false)
	w.settle()
	w.is(u, stateCP, "from 4.20.8 to 4.20.16")
	if got := w.ControlPlaneVersion(); got != "4.20.8" {
		t.Errorf("during the rollout the control plane has version %s", got)
	}
	w.report(fleet.HostedCluster, "", true)
	w.settle()
	w.is(u, stateCP, "from 4.20.16 to 4.21.4")
	w.report(fleet.HostedCluster, "", true)
	w.settle()
	w.is(u, stateNP, "Node pool a is being upgraded from 4.20.8 to 4.21.4")
	if w.Pools[1].Release.Version != "4.20.8" {
		t.Error("both node pools are upgraded at once")
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
		t.Errorf("after the upgrade: %v, the cluster %v", u.Status, w.Cluster.Status.GetPhase())
	}
	if len(w.wrong) > 0 {
		t.Error(w.wrong)
	}
}

// TestReturnedNodePoolEndsItsStep: a node pool that returns to the version that it runs is skipped, and the upgrade goes on.
func TestReturnedNodePoolEndsItsStep(t *testing.T) {
	w := newWorld(t, "4.20.8")
	u := w.begin("4.20.16", followAll)
	w.report(fleet.HostedCluster, "", true)
	w.settle()
	w.is(u, stateNP, "Node pool a is being upgraded from 4.20.8 to 4.20.16")
	w.Pools[0].Release.Version = "4.20.8"
	w.settle()
	w.is(u, stateNP, "Node pool b is being upgraded")
	step := u.Status.GetSteps()[1]
	if step.GetState() != csv1.UpgradeStepState_UPGRADE_STEP_STATE_SKIPPED || step.GetMessage() != "The node pool was returned to version 4.20.8." {
		t.Errorf("the step of node pool a is %v", step)
	}
	w.report(fleet.NodePoolWork, w.Pools[1].UID, true)
	w.settle()
	w.is(u, stateDone, "1 node pools are not part of the upgrade")
}

// TestGatesDelayControlPlane checks that each gate delays the next release of the control plane until its condition is met.
func TestGatesDelayControlPlane(t *testing.T) {
	tests := map[string]struct {
		reason, gate string
		shut         func(*world)
		open         func(*world, *fleet.Upgrade)
		late         time.Duration
	}{
		"Not before": {reason: "the start time has not passed", gate: fleet.GateNotBefore, late: time.Hour,
			open: func(w *world, _ *fleet.Upgrade) { w.now = w.now.Add(time.Hour) }},
		"Unavailable": {reason: "an unavailable control plane is not upgraded", gate: fleet.GateClusterReady,
			shut: func(w *world) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Available] = feedback.Condition{Status: "False", Message: "etcd has no quorum"}
			},
			open: func(w *world, _ *fleet.Upgrade) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Available] = feedback.Condition{Status: "True"}
			}},
		"Not upgradeable": {reason: "the cluster reports it", gate: fleet.GateUpgradeable,
			shut: func(w *world) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Upgradeable] = feedback.Condition{Status: "False", Reason: "AdminAckRequired"}
			},
			open: func(w *world, _ *fleet.Upgrade) {
				w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Upgradeable] = feedback.Condition{Status: "True"}
			}},
		"Skew": {reason: "a node pool would be too far behind", gate: fleet.GateVersionSkew,
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
			must.Do(t, u.Acknowledge(w.now, w.ClusterAggregate, fleet.GateMinorVersion, actor))
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

// TestAcknowledgedUpgradeableGateForcesUpgrade checks that the acknowledgement of the gate sets force-upgrade-to for HyperShift.
func TestAcknowledgedUpgradeableGateForcesUpgrade(t *testing.T) {
	w := newWorld(t, "4.20.16")
	w.Work(fleet.HostedCluster, "").Observed.Conditions[feedback.Upgradeable] = feedback.Condition{Status: "False", Reason: "AdminAckRequired"}
	u := w.begin("4.21.4", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE, fleet.GateMinorVersion)
	w.is(u, stateWait, "not ready for another minor version")
	must.Do(t, u.Acknowledge(w.now, w.ClusterAggregate, fleet.GateUpgradeable, actor))
	w.settle()
	w.is(u, stateCP, "")
	if got := w.ForceUpgradeTo(); got != w.Cluster.Release.Image {
		t.Errorf("forced to %q", got)
	}
}

// TestBlockedReleaseCanBeAborted checks that an upgrade whose rollout HyperShift blocks can be aborted and followed by an upgrade to
// a newer release. The release of the control plane is not lowered.
func TestBlockedReleaseCanBeAborted(t *testing.T) {
	w := newWorld(t, "4.20.8")
	u := w.begin("4.20.15", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
	work := w.Work(fleet.HostedCluster, "")
	work.Published, work.Observed.Digest = work.Desired, work.Digest
	w.settle()
	if err := u.Abort(w.now, w.ClusterAggregate, actor); err == nil {
		t.Fatal("aborted while HyperShift may start the rollout")
	}
	work.Observed.Conditions[feedback.Progressing] = feedback.Condition{Status: "False", Reason: "Blocked", Message: "ReconciliationActive condition is false"}
	work.Observed.Conditions[feedback.ReconciliationActive] = feedback.Condition{Status: "False", Reason: "ReconciliationPaused"}
	w.settle()
	if err := u.Abort(w.now, w.ClusterAggregate, actor); err == nil {
		t.Fatal("aborted while HyperShift starts the rollout after a pause")
	}
	delete(work.Observed.Conditions, feedback.ReconciliationActive)
	work.Observed.Conditions[feedback.Progressing] = feedback.Condition{Status: "False", Reason: "Blocked", Message: "ValidReleaseImage condition is false"}
	w.settle()
	if message := u.Status.GetSteps()[0].GetMessage(); !strings.Contains(message, "HyperShift blocks the rollout of release 4.20.15: ValidReleaseImage") {
		t.Errorf("the message of the step is %q", message)
	}
	must.Do(t, u.Abort(w.now, w.ClusterAggregate, actor))
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

// TestEndedUpgradeHasNoPlannedSteps checks the state of an upgrade for each reason to end, and that no step remains planned.
func TestEndedUpgradeHasNoPlannedSteps(t *testing.T) {
	tests := map[string]struct {
		reason string
		end    func(*world, *fleet.Upgrade)
		state  csv1.UpgradeState
		says   string
	}{
		"Deleted": {"the cluster is being deleted", func(w *world, _ *fleet.Upgrade) { w.Cluster.DeleteTime = w.now }, csv1.UpgradeState_UPGRADE_STATE_CANCELED, "deleted"},
		"Refused": {"Maestro permanently rejects it", func(w *world, _ *fleet.Upgrade) {
			work := w.Work(fleet.HostedCluster, "")
			work.Refused, work.Error = true, "no such image"
		}, csv1.UpgradeState_UPGRADE_STATE_FAILED, "no such image"},
		"Not applied": {"the management cluster permanently refuses it", func(w *world, _ *fleet.Upgrade) {
			work := w.Work(fleet.HostedCluster, "")
			refuse(work, work.Desired, "spec.release.image")
		}, csv1.UpgradeState_UPGRADE_STATE_FAILED, "is invalid"},
		"Pools gone": {"no node pool has to follow", func(w *world, _ *fleet.Upgrade) {
			w.report(fleet.HostedCluster, "", true)
			for _, p := range w.Pools {
				p.DeleteTime = w.now
			}
		}, stateDone, "4.20.16"},
		"Pool ahead": {"a node pool already has the release", func(w *world, _ *fleet.Upgrade) {
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
			if version := w.Cluster.Release.Version; tc.state == csv1.UpgradeState_UPGRADE_STATE_FAILED && version != "4.20.15" {
				t.Errorf("the control plane has release %s although it was refused", version)
			}
			for _, s := range u.Status.GetSteps() {
				if s.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED {
					t.Errorf("%s: a step is still planned: %v", tc.reason, s)
				}
			}
		})
	}
}

// TestTargetsHavePathsAndRisks checks the order, paths and risks of the versions that a cluster can be upgraded to.
func TestTargetsHavePathsAndRisks(t *testing.T) {
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
		t.Errorf("paths: %q", got)
	}
}

const none = csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE

// later advances the time and settles, in a region that reads components 15 seconds after a step started.
func (w *world) later(d time.Duration) {
	w.Helper()
	w.now = w.now.Add(d)
	r := region
	r.ComponentsAfter = 15 * time.Second
	must.Do(w, r.SettleObserved(w.now, w.ClusterAggregate, images{}))
}

// patient starts an upgrade in the region of later.
func (w *world) patient(version string) *fleet.Upgrade {
	w.Helper()
	plan := upgradeplan.Plan(w.now, w.ClusterAggregate, w.releases, version, none)
	u := fleet.NewUpgrade("u-"+version, clusterUID, &csv1.UpgradeSpec{Version: version, NodePools: none, Actor: actor}, plan.GetFromVersion(), plan.GetSteps(), w.now)
	w.Upgrades = append(w.Upgrades, u)
	w.later(0)
	w.report(fleet.HostedCluster, "", false)
	w.later(0)
	return u
}

// components reports the components of the control plane: version, and the reason of an incomplete rollout.
func (w *world) components(u *fleet.Upgrade, said map[string]string) {
	w.Helper()
	work := w.Work(fleet.RolloutWork, u.UID)
	work.Published, work.Observed = work.Desired, feedback.Observed{Applied: feedback.Condition{Status: "True"}, Components: map[string]feedback.Component{}}
	for name, text := range said {
		c := feedback.Component{Rollout: feedback.Condition{Status: "True", Reason: "AsExpected"}}
		version, reason, incomplete := strings.Cut(text, " ")
		if c.Version = version; incomplete {
			c.Rollout = feedback.Condition{Status: "False", Reason: reason, Message: "Waiting for " + name}
		}
		work.Observed.Components[name] = c
	}
}

func said(u *fleet.Upgrade, at time.Time) (list []string) {
	for _, c := range u.Status.GetSteps()[0].GetComponents() {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.GetName(), strings.TrimPrefix(c.GetState().String(), "COMPONENT_STATE_"), c.GetSince().AsTime().Sub(at), c.GetMessage())))
	}
	return list
}

// TestComponentsAreReadDuringRollout checks that the components are read from 15 seconds after the start of a rollout until its
// completion.
func TestComponentsAreReadDuringRollout(t *testing.T) {
	w := newWorld(t, "4.20.15")
	began := w.now
	u := w.patient("4.20.16")
	if due := u.DueTime(); !due.Equal(began.Add(15 * time.Second)) {
		t.Errorf("due at %s, want 15 s after %s", due, began)
	}
	w.later(14 * time.Second)
	if work := w.Work(fleet.RolloutWork, u.UID); work != nil {
		t.Errorf("after 14 s the work is %v, want none", work)
	}
	w.later(time.Second)
	work := w.Work(fleet.RolloutWork, u.UID)
	if work == nil || !work.Due() || !u.DueTime().IsZero() || work.Name != w.Cluster.ID()+"-rollout-u-4.20.16" {
		t.Fatalf("after 15 s: %v, due %s", work, u.DueTime())
	}
	step := u.Status.GetSteps()[0]
	if message := step.GetMessage(); message != "The control plane is rolling out 4.20.16." || len(step.GetComponents()) > 0 {
		t.Errorf("before anything is reported: %s", step)
	}

	w.components(u, map[string]string{"etcd": "4.20.15 RollingOut", "kube-apiserver": "4.20.15 WaitingForDependencies", "router": "4.20.16", "kube-scheduler": "4.20.15"})
	w.later(time.Second)
	if message := step.GetMessage(); message != "The control plane is rolling out 4.20.16. 1 of 4 components are at 4.20.16; waiting for etcd." {
		t.Errorf("the message is %q", message)
	}
	w.components(u, map[string]string{"etcd": "4.20.15 RollingOut", "kube-apiserver": "4.20.15 RollingOut", "router": "4.20.16", "kube-scheduler": "4.20.15 WaitingForDependencies"})
	w.later(time.Second)
	want := []string{"etcd ROLLING_OUT 16s Waiting for etcd", "kube-apiserver ROLLING_OUT 17s Waiting for kube-apiserver", "kube-scheduler WAITING 16s Waiting for kube-scheduler", "router UPDATED 16s"}
	if diff := cmp.Diff(want, said(u, began)); diff != "" {
		t.Error(diff)
	}
	// A component that is no longer reported is not awaited.
	w.components(u, map[string]string{"etcd": "4.20.16", "kube-apiserver": "4.20.16", "kube-scheduler": "4.20.16"})
	w.later(time.Second)
	if message := step.GetMessage(); !strings.HasSuffix(message, " 3 of 3 components are at 4.20.16.") {
		t.Errorf("the message is %q", message)
	}
	w.report(fleet.HostedCluster, "", true)
	w.later(time.Second)
	w.is(u, stateDone, "4.20.16")
	if !work.Deleting() || len(step.GetComponents()) > 0 {
		t.Errorf("after the upgrade the work is %v, the step %v", work, step)
	}
	observe(work, feedback.Observed{Deleted: true})
	w.later(time.Second)
	if len(w.Works) != 4 {
		t.Errorf("the works are %v, want 4", w.Works)
	}
}

// TestStepAfterGateGetsNewRolloutWork checks that a step that waited for a gate gets a new work after the work of the first step is
// deleted. A step that starts at once uses the work of the first step.
func TestStepAfterGateGetsNewRolloutWork(t *testing.T) {
	for name, gate := range map[string]bool{"Behind a gate": true, "At once": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "4.20.8")
			plan := upgradeplan.Plan(w.now, w.ClusterAggregate, w.releases, "4.21.4", none)
			u := fleet.NewUpgrade("u", clusterUID, &csv1.UpgradeSpec{Version: "4.21.4", NodePools: none, Actor: actor}, "4.20.8", plan.GetSteps(), w.now)
			w.Upgrades = append(w.Upgrades, u)
			must.Do(t, u.Acknowledge(w.now, w.ClusterAggregate, fleet.GateMinorVersion, actor))
			w.later(0)
			w.later(time.Minute)
			first := w.Work(fleet.RolloutWork, u.UID)
			hosted := w.Work(fleet.HostedCluster, "")
			if gate {
				hosted.Observed.Conditions[feedback.Upgradeable] = feedback.Condition{Status: "False", Reason: "AdminAckRequired"}
			}
			w.report(fleet.HostedCluster, "", true)
			w.later(0)
			if first.Deleting() != gate {
				t.Fatalf("after the first step its work is %v", first)
			}
			if !gate {
				if w.later(time.Minute); w.Work(fleet.RolloutWork, u.UID) != first || !u.DueTime().IsZero() {
					t.Errorf("the second step has %v, due %s", w.Work(fleet.RolloutWork, u.UID), u.DueTime())
				}
				return
			}
			delete(hosted.Observed.Conditions, feedback.Upgradeable)
			w.later(time.Hour)
			w.is(u, stateCP, "to 4.21.4")
			w.later(time.Minute)
			if w.Work(fleet.RolloutWork, u.UID) != first || !u.DueTime().IsZero() {
				t.Errorf("while the first work is being deleted, the work is %v, due %s", w.Work(fleet.RolloutWork, u.UID), u.DueTime())
			}
			observe(first, feedback.Observed{Deleted: true})
			w.later(0)
			if second := w.Work(fleet.RolloutWork, u.UID); second == nil || second.ID == first.ID || second.Deleting() {
				t.Errorf("the second step has %v", second)
			}
		})
	}
}

// TestClusterDeletionDeletesRolloutWork checks that the rollout work is a step of the deletion of its cluster.
func TestClusterDeletionDeletesRolloutWork(t *testing.T) {
	w := newWorld(t, "4.20.15")
	u := w.patient("4.20.16")
	w.later(time.Minute)
	w.components(u, map[string]string{"etcd": "4.20.15 RollingOut"})
	w.later(0)
	w.Cluster.DeleteTime = w.now
	w.later(0)
	work := w.Work(fleet.RolloutWork, u.UID)
	if !work.Deleting() || u.Active() || len(u.Status.GetSteps()[0].GetComponents()) > 0 {
		t.Errorf("the work is %v, the upgrade %v", work, u.Status)
	}
	var steps []string
	for _, s := range w.Cluster.Status.GetDeletion().GetSteps() {
		if strings.HasPrefix(s.GetName(), "rollout/") {
			steps = append(steps, s.GetName()+" "+s.GetKind())
		}
	}
	if diff := cmp.Diff([]string{"rollout/u-4.20.16/publish rollout-publish", "rollout/u-4.20.16 rollout"}, steps); diff != "" {
		t.Error(diff)
	}
}

// TestRolloutMessageNamesThreeComponents checks that the message names at most three components: those that roll out, or those that
// wait if none rolls out.
func TestRolloutMessageNamesThreeComponents(t *testing.T) {
	w := newWorld(t, "4.20.15")
	u := w.patient("4.20.16")
	w.later(time.Minute)
	all := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all[name] = "4.20.15 WaitingForDependencies"
	}
	w.components(u, all)
	w.later(0)
	all["e"] = "4.20.15 ReconciliationError"
	w.components(u, all)
	step := u.Status.GetSteps()[0]
	if message := step.GetMessage(); !strings.HasSuffix(message, "0 of 5 components are at 4.20.16; waiting for a, b, c and 2 more.") {
		t.Errorf("the message is %q", message)
	}
	w.later(0)
	if message := step.GetMessage(); !strings.HasSuffix(message, "; waiting for e.") {
		t.Errorf("the message is %q", message)
	}
}
