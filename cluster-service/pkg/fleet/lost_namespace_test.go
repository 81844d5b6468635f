package fleet_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

const controlPlaneNamespace = "ocm-x-p"

// inNamespace returns an available HostedCluster with the UID "first" and the report of its control-plane namespace.
func inNamespace(namespace feedback.Namespace) feedback.Observed {
	o := identified("first")
	namespace.Name = controlPlaneNamespace
	o.Namespace = namespace
	return o
}

func existing(uid string) feedback.Namespace {
	return feedback.Namespace{UID: uid, CreateTime: start.Add(-time.Hour)}
}

func terminating(uid string) feedback.Namespace {
	return feedback.Namespace{UID: uid, CreateTime: start.Add(-time.Hour), DeleteTime: start.Add(-time.Minute)}
}

func successor(uid string) feedback.Namespace {
	return feedback.Namespace{UID: uid, CreateTime: start.Add(time.Minute)}
}

var noNamespace = feedback.Namespace{Missing: true}

// installedIn returns a ready cluster whose control plane is in the namespace with the UID "n-1".
func installedIn(t *testing.T) *fleet.ClusterAggregate {
	t.Helper()
	aggregate := placed(t)
	report(t, aggregate, inNamespace(existing("n-1")))
	if s := aggregate.Cluster.Status; s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || s.GetControlPlane().GetNamespaceUid() != "n-1" {
		t.Fatalf("phase %s, control plane %v", s.GetPhase(), s.GetControlPlane())
	}
	return aggregate
}

// TestReplacedNamespaceIsNeverHealthy removes the control-plane namespace of an installed cluster. The HostedCluster stays the same
// and is available all the time; the data is gone.
func TestReplacedNamespaceIsNeverHealthy(t *testing.T) {
	aggregate := installedIn(t)
	hosted := aggregate.Work(fleet.HostedCluster, "")
	history := func(want *csv1.ObjectRemoval) {
		t.Helper()
		want.Kind, want.Name, want.Uid, want.ProvisionShard = "Namespace", controlPlaneNamespace, "n-1", "mgmt-1"
		if diff := cmp.Diff([]*csv1.ObjectRemoval{want}, aggregate.Cluster.Status.GetRemovals(), protocmp.Transform()); diff != "" {
			t.Errorf("history: -want +got:\n%s", diff)
		}
	}
	drift := func(want string) {
		t.Helper()
		if got := aggregate.DriftOf(hosted); got != want {
			t.Errorf("drift %q, want %q", got, want)
		}
	}
	lost := timestamppb.New(start.Add(-time.Minute))
	actor := &csv1.Actor{Name: "ada"}

	report(t, aggregate, inNamespace(terminating("n-1")))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneBeingRemoved)
	drift(clusterstatus.DriftBeingRemoved)
	history(&csv1.ObjectRemoval{Reason: maestroapi.RemovedBeingDeleted, RemoveTime: lost})
	if err := aggregate.AcceptControlPlane(start, "", actor); !errors.Is(err, fleet.ErrControlPlaneMissing) {
		t.Errorf("accepting a control plane that is being removed: %v", err)
	}

	report(t, aggregate, inNamespace(noNamespace))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneRemoved)
	drift(clusterstatus.DriftRemoved)
	history(&csv1.ObjectRemoval{Reason: maestroapi.RemovedDeleted, RemoveTime: lost})
	if err := aggregate.AcceptControlPlane(start, "", actor); !errors.Is(err, fleet.ErrControlPlaneMissing) {
		t.Errorf("accepting a control plane that does not exist: %v", err)
	}

	report(t, aggregate, inNamespace(successor("n-2")))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneReplaced)
	drift(clusterstatus.DriftReplaced)
	history(&csv1.ObjectRemoval{Reason: maestroapi.RemovedDeleted, RemoveTime: lost, AppliedAgainTime: timestamppb.New(start.Add(time.Minute))})
	if got := aggregate.Cluster.Status.GetControlPlane().GetLostTime(); !got.AsTime().Equal(lost.AsTime()) {
		t.Errorf("lost at %v, want %v", got, lost)
	}
	// A report without the namespace proves nothing.
	report(t, aggregate, identified("first"))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneReplaced)

	report(t, aggregate, inNamespace(successor("n-2")))
	for _, other := range []string{"first", "n-1"} {
		if err := aggregate.AcceptControlPlane(start, other, actor); !errors.As(err, new(*fleet.ControlPlaneChangedError)) {
			t.Errorf("accepting %s: %v", other, err)
		}
	}
	if err := aggregate.AcceptControlPlane(start, "n-2", actor); err != nil {
		t.Fatal(err)
	}
	settle(t, aggregate, nil)
	s := aggregate.Cluster.Status
	if cp := s.GetControlPlane(); s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || cp.GetUid() != "first" || cp.GetNamespaceUid() != "n-2" || cp.GetAcceptedBy().GetName() != "ada" {
		t.Errorf("accepted: %v", s)
	}
	drift("")
}

func TestIdentityOfNamespace(t *testing.T) {
	both := func(hosted string, namespace feedback.Namespace) feedback.Observed {
		o := inNamespace(namespace)
		o.UID = hosted
		return o
	}
	gone := missing()
	gone.Namespace = feedback.Namespace{Name: controlPlaneNamespace, Missing: true}
	tests := map[string]struct {
		reason  string
		reports []feedback.Observed
		want    string
	}{
		"Same":                    {"nothing happened", []feedback.Observed{inNamespace(existing("n-1"))}, ""},
		"Not reported":            {"an agent that does not read it", []feedback.Observed{identified("first")}, ""},
		"Missing, then same":      {"the report was wrong", []feedback.Observed{inNamespace(noNamespace), inNamespace(existing("n-1"))}, ""},
		"Missing, then silent":    {"a report without it proves nothing", []feedback.Observed{inNamespace(noNamespace), identified("first")}, fleet.ControlPlaneRemoved},
		"Replaced unseen":         {"the agent did not run meanwhile", []feedback.Observed{inNamespace(successor("n-2"))}, fleet.ControlPlaneReplaced},
		"Replaced twice":          {"the successor was removed too", []feedback.Observed{inNamespace(successor("n-2")), inNamespace(terminating("n-2")), inNamespace(successor("n-3"))}, fleet.ControlPlaneReplaced},
		"Successor being removed": {"it cannot be kept either", []feedback.Observed{inNamespace(successor("n-2")), inNamespace(terminating("n-2"))}, fleet.ControlPlaneBeingRemoved},
		"Both replaced":           {"the HostedCluster was removed, and HyperShift deleted the namespace", []feedback.Observed{gone, both("second", successor("n-2"))}, fleet.ControlPlaneReplaced},
		"Rebuilding":              {"the new HostedCluster has no namespace yet", []feedback.Observed{gone, both("second", noNamespace)}, fleet.ControlPlaneRemoved},
		"Only HostedCluster":      {"the HostedCluster is another one, in the same namespace", []feedback.Observed{both("second", existing("n-1"))}, fleet.ControlPlaneReplaced},
		"Restored":                {"both are the ones of the installed cluster again", []feedback.Observed{both("second", successor("n-2")), inNamespace(existing("n-1"))}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := installedIn(t)
			for _, seen := range tc.reports {
				report(t, aggregate, seen)
				settle(t, aggregate, nil) // repeating a decision changes nothing
			}
			s := aggregate.Cluster.Status
			if tc.want != "" {
				checkLost(t, s, tc.want)
			} else if s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || s.GetControlPlane().GetLostTime() != nil {
				t.Errorf("phase %s, control plane %v: %s", s.GetPhase(), s.GetControlPlane(), tc.reason)
			}
			if tc.want != fleet.ControlPlaneReplaced {
				return
			}
			last := tc.reports[len(tc.reports)-1]
			if err := aggregate.AcceptControlPlane(start, "", nil); err != nil {
				t.Fatal(err)
			}
			settle(t, aggregate, nil)
			s = aggregate.Cluster.Status
			if cp := s.GetControlPlane(); s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || cp.GetUid() != last.UID || cp.GetNamespaceUid() != last.Namespace.UID {
				t.Errorf("accepted: phase %s, control plane %v", s.GetPhase(), cp)
			}
		})
	}
}

// TestHistoryOfNamespaces removes the control-plane namespace twice. Each removal is one entry, with its own end.
func TestHistoryOfNamespaces(t *testing.T) {
	aggregate := installedIn(t)
	for _, namespace := range []feedback.Namespace{terminating("n-1"), noNamespace, successor("n-2"), terminating("n-2"), noNamespace, successor("n-3")} {
		report(t, aggregate, inNamespace(namespace))
		settle(t, aggregate, nil)
	}
	got := map[string]bool{}
	for _, r := range aggregate.Cluster.Status.GetRemovals() {
		got[r.GetUid()] = r.GetAppliedAgainTime() != nil
	}
	if diff := cmp.Diff(map[string]bool{"n-1": true, "n-2": true}, got); diff != "" {
		t.Errorf("removals and whether they have ended: -want +got:\n%s", diff)
	}
}

// TestNamespaceOfStoredCluster reports the namespace of a cluster that a release stored which did not read it.
func TestNamespaceOfStoredCluster(t *testing.T) {
	tests := map[string]struct {
		reason    string
		namespace feedback.Namespace
		uid, lost string
	}{
		"Exists":        {"its identity is unknown, so it is the one of the cluster", existing("n-1"), "n-1", ""},
		"Missing":       {"without a known identity, its absence proves nothing", noNamespace, "", ""},
		"Not reported":  {"the agent has not read it yet", feedback.Namespace{}, "", ""},
		"Being deleted": {"a deletion in progress takes the data with it", terminating("n-1"), "n-1", fleet.ControlPlaneBeingRemoved},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := installed(t)
			report(t, aggregate, inNamespace(tc.namespace))
			s := aggregate.Cluster.Status
			if got := s.GetControlPlane().GetNamespaceUid(); got != tc.uid {
				t.Errorf("the namespace's UID is %q, want %q: %s", got, tc.uid, tc.reason)
			}
			if tc.lost != "" {
				checkLost(t, s, tc.lost)
			} else if s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY {
				t.Errorf("phase %s: %s", s.GetPhase(), tc.reason)
			}
		})
	}
}

// TestSuccessorIsNotTheOriginal loses the HostedCluster of a cluster whose namespace was never reported. The namespace of the successor
// must not count as the one that had the data, and one that is being deleted must not count as unharmed.
func TestSuccessorIsNotTheOriginal(t *testing.T) {
	aggregate := installed(t)
	second := inNamespace(successor("n-2"))
	second.UID = "second"
	report(t, aggregate, second)
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneReplaced)
	if cp := aggregate.Cluster.Status.GetControlPlane(); cp.GetNamespaceUid() != "" {
		t.Errorf("%v", cp)
	}
	if err := aggregate.AcceptControlPlane(start, "second", nil); err != nil {
		t.Fatal(err)
	}
	if cp := aggregate.Cluster.Status.GetControlPlane(); cp.GetUid() != "second" || cp.GetNamespaceUid() != "n-2" {
		t.Errorf("accepted: %v", cp)
	}

	aggregate = installed(t)
	report(t, aggregate, missing())
	report(t, aggregate, inNamespace(terminating("n-1")))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneBeingRemoved)
}

// TestNamespaceOfNewCluster replaces the namespace of a cluster that was never ready, and so has no data. While a namespace is being
// deleted, the cluster does not become ready in it.
func TestNamespaceOfNewCluster(t *testing.T) {
	aggregate := placed(t)
	for _, namespace := range []feedback.Namespace{noNamespace, existing("n-1"), terminating("n-1")} {
		seen := inNamespace(namespace)
		if !namespace.BeingDeleted() {
			seen = with(seen, feedback.Available, "False")
		}
		report(t, aggregate, seen)
		if phase := aggregate.Cluster.Status.GetPhase(); phase != csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING {
			t.Errorf("phase %s with namespace %+v", phase, namespace)
		}
	}
	report(t, aggregate, inNamespace(existing("n-2")))
	s := aggregate.Cluster.Status
	if s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || s.GetControlPlane().GetNamespaceUid() != "n-2" || len(s.GetRemovals()) > 0 {
		t.Errorf("%v", s)
	}
}

// TestDeletionTakesNamespace deletes a cluster. HyperShift deletes the control-plane namespace by design.
func TestDeletionTakesNamespace(t *testing.T) {
	aggregate := installedIn(t)
	aggregate.Cluster.DeleteTime = start
	settle(t, aggregate, versions{})
	for _, namespace := range []feedback.Namespace{terminating("n-1"), noNamespace} {
		report(t, aggregate, inNamespace(namespace))
		s := aggregate.Cluster.Status
		if s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_DELETING || s.GetControlPlane().GetLostTime() != nil || len(s.GetRemovals()) > 0 {
			t.Errorf("%v", s)
		}
	}
}
