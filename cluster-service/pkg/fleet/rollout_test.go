package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/upgradeplan"
)

const none = csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE

// later advances the time and settles, in a region that reads components 15 seconds after a step started.
func (w *world) later(d time.Duration) {
	w.Helper()
	w.now = w.now.Add(d)
	r := region
	r.ComponentsAfter = 15 * time.Second
	if err := r.SettleObserved(w.now, w.ClusterAggregate, images{}); err != nil {
		w.Fatal(err)
	}
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
			if err := u.Acknowledge(w.now, w.ClusterAggregate, fleet.GateMinorVersion, actor); err != nil {
				t.Fatal(err)
			}
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
