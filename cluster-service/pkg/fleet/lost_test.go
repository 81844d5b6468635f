package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// identified returns an available HostedCluster with a UID.
func identified(uid string) feedback.Observed {
	o := hosted("cluster-1", "True", "Completed")
	o.UID = uid
	return o
}

// missing returns the report after a HostedCluster was deleted.
func missing(removals ...feedback.Removal) feedback.Observed {
	return feedback.Observed{Applied: feedback.Condition{Status: "True"}, Missing: true, Removals: removals}
}

func removedHostedCluster(reason string, again time.Time) feedback.Removal {
	return feedback.Removal{Kind: "HostedCluster", Namespace: "ocm-x", Name: "p", UID: "first", Reason: reason, Time: start.Add(-time.Minute), AppliedAgain: again}
}

// installed returns a ready cluster whose HostedCluster has the UID "first".
func installed(t *testing.T) *fleet.ClusterAggregate {
	t.Helper()
	aggregate := placed(t)
	report(t, aggregate, identified("first"))
	if phase := aggregate.Cluster.Status.GetPhase(); phase != csv1.ClusterPhase_CLUSTER_PHASE_READY {
		t.Fatalf("the cluster is %s", phase)
	}
	return aggregate
}

func report(t *testing.T, aggregate *fleet.ClusterAggregate, seen feedback.Observed) {
	t.Helper()
	observe(aggregate.Work(fleet.HostedCluster, ""), seen)
	settle(t, aggregate, nil)
}

func conditionOf(list []*csv1.Condition, name string) *csv1.Condition {
	i := slices.IndexFunc(list, func(c *csv1.Condition) bool { return c.GetType() == name })
	if i < 0 {
		return nil
	}
	return list[i]
}

// checkLost fails the test unless a cluster is lost for a reason and nothing shows it as healthy.
func checkLost(t *testing.T, s *csv1.ClusterStatus, reason string) {
	t.Helper()
	if s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_LOST || s.GetControlPlane().GetLostTime() == nil {
		t.Errorf("phase %s, control plane %v; want LOST", s.GetPhase(), s.GetControlPlane())
	}
	for name, want := range map[string]string{"Available": "False", "Degraded": "True"} {
		if c := conditionOf(s.GetConditions(), name); c.GetStatus() != want || c.GetReason() != reason {
			t.Errorf("condition %v, want %s %s", c, want, reason)
		}
	}
	if last := s.GetProgress()[len(s.GetProgress())-1]; last.GetLayer() != fleet.LayerControlPlane || last.GetState() != reason {
		t.Errorf("progress %v, want %s", last, reason)
	}
}

// TestReplacedControlPlaneIsNeverHealthy removes the HostedCluster of an installed cluster. The new one is available, has the
// desired state and its release, but not the data.
func TestReplacedControlPlaneIsNeverHealthy(t *testing.T) {
	aggregate := installed(t)
	deleting := identified("first")
	deleting.Removals = []feedback.Removal{removedHostedCluster(maestroapi.RemovedBeingDeleted, time.Time{})}
	report(t, aggregate, deleting)
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneBeingRemoved)

	report(t, aggregate, missing(removedHostedCluster(maestroapi.RemovedDeleted, time.Time{})))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneRemoved)
	if applied := conditionOf(aggregate.Cluster.Status.GetConditions(), "Applied"); applied.GetStatus() != "False" {
		t.Errorf("a removed HostedCluster counts as applied: %v", applied)
	}

	replaced := identified("second")
	replaced.Removals = []feedback.Removal{removedHostedCluster(maestroapi.RemovedDeleted, start)}
	report(t, aggregate, replaced)
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneReplaced)
	want := []*csv1.ObjectRemoval{{Kind: "HostedCluster", Namespace: "ocm-x", Name: "p", Uid: "first", ProvisionShard: "mgmt-1", Reason: maestroapi.RemovedDeleted,
		RemoveTime: aggregate.Cluster.Status.GetControlPlane().GetLostTime(), AppliedAgainTime: timestamppb.New(start)}}
	if got := aggregate.Cluster.Status.GetRemovals(); len(got) != 1 || !proto.Equal(got[0], want[0]) {
		t.Errorf("history %v, want %v", got, want)
	}
	// A restarted agent no longer reports the removal.
	report(t, aggregate, identified("second"))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneReplaced)
	if got := aggregate.Cluster.Status.GetRemovals(); len(got) != 1 {
		t.Errorf("history %v", got)
	}

	if err := aggregate.AcceptControlPlane(start, "other", nil); !errors.As(err, new(*fleet.ControlPlaneChangedError)) {
		t.Errorf("accepting another control plane: %v", err)
	}
	actor := &csv1.Actor{Name: "ada"}
	must.Do(t, aggregate.AcceptControlPlane(start, "second", actor))
	settle(t, aggregate, nil)
	s := aggregate.Cluster.Status
	if s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || conditionOf(s.GetConditions(), "Available").GetStatus() != "True" || s.GetControlPlane().GetAcceptedBy().GetName() != "ada" {
		t.Errorf("accepted: %v", s)
	}
	if err := aggregate.AcceptControlPlane(start, "", actor); !errors.Is(err, fleet.ErrNotLost) {
		t.Errorf("accepting twice: %v", err)
	}
}

// TestReplacementIsNoticedWithoutReportOfRemoval replaces a HostedCluster below an agent that does not report removals.
func TestReplacementIsNoticedWithoutReportOfRemoval(t *testing.T) {
	aggregate := installed(t)
	report(t, aggregate, identified("second"))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneReplaced)
	if got := aggregate.Cluster.Status.GetRemovals(); len(got) != 1 || got[0].GetUid() != "first" || got[0].GetReason() != maestroapi.RemovedReplaced {
		t.Errorf("history %v", got)
	}
}

func TestIdentityOfControlPlane(t *testing.T) {
	tests := map[string]struct {
		reason  string
		reports []feedback.Observed
		lost    bool
	}{
		"Same":                 {"nothing happened", []feedback.Observed{identified("first")}, false},
		"Not reported":         {"an agent without the rule reports no UID", []feedback.Observed{identified("")}, false},
		"Missing":              {"the HostedCluster does not exist", []feedback.Observed{missing()}, true},
		"Missing, then same":   {"the report was wrong: the HostedCluster was never removed", []feedback.Observed{missing(), identified("first")}, false},
		"Missing, then silent": {"a report without the UID proves nothing", []feedback.Observed{missing(), identified("")}, true},
		"Replaced":             {"another HostedCluster has its name", []feedback.Observed{identified("second")}, true},
		"Replaced twice":       {"the second replacement was removed too", []feedback.Observed{identified("second"), missing(), identified("third")}, true},
		"Restored":             {"the HostedCluster with its UID is back", []feedback.Observed{identified("second"), identified("first")}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := installed(t)
			for _, seen := range tc.reports {
				report(t, aggregate, seen)
			}
			if lost := aggregate.Cluster.Status.GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_LOST; lost != tc.lost {
				t.Errorf("lost: %v, want %v: %s", lost, tc.lost, tc.reason)
			}
		})
	}
}

// TestControlPlaneOfNewClusterMayBeReplaced replaces the HostedCluster of a cluster that was never ready, and so has no data.
func TestControlPlaneOfNewClusterMayBeReplaced(t *testing.T) {
	aggregate := placed(t)
	partial := hosted("cluster-1", "False", "Partial")
	partial.UID = "first"
	report(t, aggregate, partial)
	report(t, aggregate, missing())
	if c := conditionOf(aggregate.Cluster.Status.GetConditions(), "Available"); c.GetStatus() != "False" {
		t.Errorf("missing: %v", c)
	}
	report(t, aggregate, identified("second"))
	if s := aggregate.Cluster.Status; s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY || s.GetControlPlane().GetUid() != "second" {
		t.Errorf("%v", s)
	}
}

// TestDeletedNamespaceMeansLostControlPlane deletes the namespace of a HostedCluster. Kubernetes deletes the HostedCluster some
// seconds later; until then it is available.
func TestDeletedNamespaceMeansLostControlPlane(t *testing.T) {
	aggregate := installed(t)
	namespace := aggregate.Work(fleet.Namespaces, "")
	observe(namespace, applied(""))
	namespace.Observed.Removals = []feedback.Removal{{Kind: "Namespace", Name: "ocm-x", UID: "n", Reason: maestroapi.RemovedBeingDeleted, Time: start}}
	settle(t, aggregate, nil)
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneBeingRemoved)
	if drift := aggregate.DriftOf(aggregate.Work(fleet.HostedCluster, "")); drift != clusterstatus.DriftBeingRemoved {
		t.Errorf("drift %q", drift)
	}
	namespace.Observed.Removals[0].AppliedAgain = start.Add(time.Minute)
	report(t, aggregate, identified("second"))
	checkLost(t, aggregate.Cluster.Status, fleet.ControlPlaneReplaced)
}

// TestDeletionOfLostCluster deletes a cluster whose control plane is lost.
func TestDeletionOfLostCluster(t *testing.T) {
	aggregate := installed(t)
	report(t, aggregate, identified("second"))
	aggregate.Cluster.DeleteTime = start
	settle(t, aggregate, versions{})
	if phase := aggregate.Cluster.Status.GetPhase(); phase != csv1.ClusterPhase_CLUSTER_PHASE_DELETING {
		t.Errorf("phase %s", phase)
	}
}

// TestMissingNodePoolHasNoNodes removes the NodePool of a ready node pool.
func TestMissingNodePoolHasNoNodes(t *testing.T) {
	aggregate := installed(t)
	work := aggregate.Work(fleet.NodePoolWork, poolUID)
	ready := applied("pool-1")
	ready.Replicas, ready.Version = 2, "4.21.4"
	observe(work, with(with(with(ready, feedback.Ready, "True"), feedback.AllMachines, "True"), feedback.AllNodes, "True"))
	settle(t, aggregate, nil)
	s := aggregate.Pools[0].Status
	if s.GetPhase() != csv1.NodePoolPhase_NODE_POOL_PHASE_READY || s.GetReplicas() != 2 {
		t.Fatalf("%v", s)
	}
	observe(work, missing(feedback.Removal{Kind: "NodePool", Name: "p-np", UID: "u", Reason: maestroapi.RemovedDeleted, Time: start}))
	settle(t, aggregate, nil)
	if s.GetReplicas() != 0 || conditionOf(s.GetConditions(), "Ready").GetStatus() != "False" || conditionOf(s.GetConditions(), "AllNodesHealthy").GetStatus() == "True" {
		t.Errorf("%v", s)
	}
	if got := aggregate.Cluster.Status.GetRemovals(); len(got) != 1 || got[0].GetKind() != "NodePool" {
		t.Errorf("history %v", got)
	}
}

// TestHistoryOfRemovalsIsBounded reports many removals.
func TestHistoryOfRemovalsIsBounded(t *testing.T) {
	aggregate := installed(t)
	for i := range 30 {
		seen := identified("first")
		seen.Removals = []feedback.Removal{{Kind: "Secret", Name: "s", UID: fmt.Sprint(i), Reason: maestroapi.RemovedDeleted, Time: start.Add(time.Duration(i) * time.Minute)}}
		report(t, aggregate, seen)
	}
	got := aggregate.Cluster.Status.GetRemovals()
	if len(got) != 20 || got[0].GetUid() != "29" || got[19].GetUid() != "10" {
		t.Errorf("%d removals, %v to %v", len(got), got[0], got[len(got)-1])
	}
}

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
	must.Do(t, aggregate.AcceptControlPlane(start, "n-2", actor))
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
			must.Do(t, aggregate.AcceptControlPlane(start, "", nil))
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
	must.Do(t, aggregate.AcceptControlPlane(start, "second", nil))
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
