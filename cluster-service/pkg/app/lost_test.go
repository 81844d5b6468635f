package app_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestLostControlPlane removes the HostedCluster of an installed cluster. The new one becomes available, and still the cluster is
// lost until an SRE accepts it.
func TestLostControlPlane(t *testing.T) {
	t.Parallel()
	r, instance := newRegion(t).run()
	ctx := t.Context()
	request, c := instance.createReady(t, "lost")
	first := c.GetStatus().GetControlPlane().GetUid()
	if first == "" {
		t.Fatal("the identity of the control plane is not stored")
	}
	accept := &csv1.AcceptControlPlaneRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("the customer restores a backup")}
	_, err := instance.AcceptControlPlane(ctx, accept)
	wantRefusal(t, err, service.ReasonControlPlaneNotLost)

	work := r.workOf(c)
	r.maestro.Remove(work)
	removed := instance.awaitCluster(t, request.Uid, isLost("ControlPlaneRemoved"))
	if got := statusOf(removed, "Applied"); got != "False" {
		t.Errorf("Applied is %s", got)
	}
	_, err = instance.AcceptControlPlane(ctx, accept)
	wantRefusal(t, err, service.ReasonControlPlaneMissing)
	works, err := instance.ListWorks(ctx, &csv1.ListWorksRequest{Ids: []string{work}})
	if err != nil || len(works.GetWorks()) != 1 || works.GetWorks()[0].GetCarried() || !works.GetWorks()[0].GetMissing() {
		t.Errorf("works %v, %v", works, err)
	}

	drift := func(want string) {
		t.Helper()
		list := must.Get(instance.ListWorks(ctx, &csv1.ListWorksRequest{Drifting: true}))(t)
		of := must.Get(instance.ListWorks(ctx, &csv1.ListWorksRequest{ClusterUid: request.Uid}))(t)
		for _, w := range of.GetWorks() {
			if w.GetId() == work && w.GetDrift() != want {
				t.Errorf("the work's drift is %q, want %q", w.GetDrift(), want)
			}
		}
		switch {
		case want == "" && len(list.GetWorks()) > 0, want != "" && len(list.GetWorks()) != 1:
			t.Errorf("works with drift: %v, want %q", list.GetWorks(), want)
		case want != "" && (list.GetWorks()[0].GetDrift() != want || list.GetWorks()[0].GetClusterResourceId() != request.ResourceId):
			t.Errorf("work with drift: %v, want %q", list.GetWorks()[0], want)
		}
	}
	drift("Removed")

	r.maestro.ApplyAgain(work)
	replaced := instance.awaitCluster(t, request.Uid, isLost("ControlPlaneReplaced"))
	if got := replaced.GetStatus().GetRemovals(); len(got) != 1 || got[0].GetUid() != first || got[0].GetKind() != "HostedCluster" {
		t.Errorf("history %v", got)
	}
	lost := func(want int) {
		t.Helper()
		eventually.Soon(t, "lost control planes are counted", func() error {
			return testutil.GatherAndCompare(instance.metrics, strings.NewReader(fmt.Sprintf("# HELP cluster_service_control_planes_lost %s\n# TYPE cluster_service_control_planes_lost gauge\ncluster_service_control_planes_lost %d\n",
				"Installed clusters whose control plane was removed, and for which an SRE must decide whether its successor is accepted. Every replica counts all of them.", want)), "cluster_service_control_planes_lost")
		})

	}
	lost(1)
	drift("Replaced")
	// The receiver counts a removal after its commit.
	eventually.Soon(t, "the removal is counted", func() error {
		if n, err := testutil.GatherAndCount(instance.metrics, "cluster_service_objects_removed_total"); n != 1 || err != nil {
			return fmt.Errorf("%d counters of removals, %v", n, err)
		}
		return nil
	})

	accept.ControlPlaneUid = first
	_, err = instance.AcceptControlPlane(ctx, accept)
	wantRefusal(t, err, service.ReasonControlPlaneChanged)
	accept.ControlPlaneUid = replaced.GetStatus().GetControlPlane().GetReplacementUid()
	done := must.Get(instance.AcceptControlPlane(ctx, accept))(t)
	again, err := instance.AcceptControlPlane(ctx, accept)
	if err != nil || again.GetEffect() != done.GetEffect() || !again.GetTime().AsTime().Equal(done.GetTime().AsTime()) {
		t.Errorf("the repeated action: %v, %v", again, err)
	}
	healthy := instance.awaitCluster(t, request.Uid, clusterReady(1))
	if got := statusOf(healthy, "Available"); got != "True" || healthy.GetStatus().GetControlPlane().GetAcceptedBy().GetName() != "alice@example.com" {
		t.Errorf("accepted: %v", healthy.GetStatus())
	}
	lost(0)
	drift("")
}

// workOf returns the ID of the work with the HostedCluster of a cluster.
func (r *region) workOf(c *csv1.Cluster) string {
	for id, held := range r.maestro.Resources() {
		if held.Name == c.GetStatus().GetClusterId() {
			return id
		}
	}
	r.t.Fatal("Maestro has no work of the HostedCluster")
	return ""
}

// TestLostNamespace removes the control-plane namespace of an installed cluster. The HostedCluster stays the same and available, and
// still the cluster is lost until an SRE accepts the new control plane.
func TestLostNamespace(t *testing.T) {
	t.Parallel()
	r, instance := newRegion(t).run()
	ctx := t.Context()
	request, c := instance.createReady(t, "emptied")
	first, work := c.GetStatus().GetControlPlane(), r.workOf(c)
	if first.GetNamespaceUid() == "" {
		t.Fatal("the identity of the control-plane namespace is not stored")
	}
	accept := &csv1.AcceptControlPlaneRequest{Uid: uuid.NewString(), ClusterUid: request.Uid, Actor: alice("the customer restores a backup")}

	r.maestro.DeleteRead(work)
	instance.awaitCluster(t, request.Uid, isLost("ControlPlaneBeingRemoved"))
	_, err := instance.AcceptControlPlane(ctx, accept)
	wantRefusal(t, err, service.ReasonControlPlaneMissing)
	r.maestro.RemoveRead(work)
	removed := instance.awaitCluster(t, request.Uid, isLost("ControlPlaneRemoved"))
	if got := statusOf(removed, "Applied"); got != "True" {
		t.Errorf("Applied is %s although the HostedCluster is applied", got)
	}
	_, err = instance.AcceptControlPlane(ctx, accept)
	wantRefusal(t, err, service.ReasonControlPlaneMissing)
	r.maestro.ReplaceRead(work)
	replaced := instance.awaitCluster(t, request.Uid, isLost("ControlPlaneReplaced"))
	cp := replaced.GetStatus().GetControlPlane()
	if cp.GetUid() != first.GetUid() || cp.GetReplacementUid() != "" || cp.GetReplacementNamespaceUid() == "" {
		t.Errorf("%v", cp)
	}
	got := replaced.GetStatus().GetRemovals()
	if len(got) != 1 || got[0].GetKind() != "Namespace" || got[0].GetUid() != first.GetNamespaceUid() || got[0].GetAppliedAgainTime() == nil {
		t.Errorf("history %v", got)
	}
	list, err := instance.ListWorks(ctx, &csv1.ListWorksRequest{Drifting: true})
	if err != nil || len(list.GetWorks()) != 1 || list.GetWorks()[0].GetId() != work || list.GetWorks()[0].GetDrift() != "Replaced" {
		t.Errorf("works with drift: %v, %v", list.GetWorks(), err)
	}

	// A restarted service has stored what it must not forget.
	instance.stop()
	instance = r.start(nil)
	instance.awaitCluster(t, request.Uid, isLost("ControlPlaneReplaced"))
	accept.ControlPlaneUid = first.GetUid()
	_, err = instance.AcceptControlPlane(ctx, accept)
	wantRefusal(t, err, service.ReasonControlPlaneChanged)
	accept.ControlPlaneUid = cp.GetReplacementNamespaceUid()
	done := must.Get(instance.AcceptControlPlane(ctx, accept))(t)
	if !strings.Contains(done.GetEffect(), cp.GetReplacementNamespaceUid()) {
		t.Errorf("effect %q", done.GetEffect())
	}
	healthy := instance.awaitCluster(t, request.Uid, clusterReady(1))
	if now := healthy.GetStatus().GetControlPlane(); now.GetUid() != first.GetUid() || now.GetNamespaceUid() != cp.GetReplacementNamespaceUid() || now.GetLostTime() != nil {
		t.Errorf("accepted: %v", now)
	}
}

// TestStoredClusterGetsNamespace starts this release with a ready cluster that a release stored which did not read the control-plane
// namespace. The cluster gets the new content and the identity of the namespace. Customers see no change.
func TestStoredClusterGetsNamespace(t *testing.T) {
	t.Parallel()
	r, earlier := newRegion(t).run()
	clusters, pools := readyClusters(t, earlier, 1)
	uid := clusters[0].Uid
	stored := must.Get(earlier.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: uid}))(t)
	earlier.stop()
	r.maestro.DropRead(r.workOf(stored))

	database := must.Get(store.Open(store.Options{URL: r.url, MaxConnections: 2}))(t)
	defer database.Close()
	var desired int64
	must.Do(t, database.Update(t.Context(), []string{uid}, func(_ context.Context, tx *store.Tx) error {
		aggregate := tx.Aggregates[uid]
		work := aggregate.Work(fleet.HostedCluster, "")
		desired, work.Digest, work.Observed.Digest, work.Observed.Namespace = work.Desired, "earlier", "earlier", feedback.Namespace{}
		aggregate.Cluster.Status.ControlPlane.NamespaceUid = ""
		return nil
	}))
	later := r.start(nil)
	later.awaitCluster(t, uid, func(c *csv1.Cluster) bool {
		if phase := c.GetStatus().GetPhase(); phase != csv1.ClusterPhase_CLUSTER_PHASE_READY {
			t.Errorf("phase %s", phase)
		}
		return c.GetStatus().GetControlPlane().GetNamespaceUid() != ""
	})
	expectUnmoved(t, later, clusters, pools)
	aggregate := must.Get(database.Read(t.Context(), uid))(t)
	if work := aggregate.Work(fleet.HostedCluster, ""); work.Desired != desired+1 || !work.Applied() {
		t.Errorf("the work has content %d, applied %v; want %d", work.Desired, work.Applied(), desired+1)
	}
}

func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	if got := reason(err); got != want {
		t.Errorf("%v, want reason %s", err, want)
	}
}

// isLost reports whether a cluster is lost for a reason, and nothing shows it as healthy.
func isLost(reason string) func(*csv1.Cluster) bool {
	return func(c *csv1.Cluster) bool {
		s := c.GetStatus()
		available := conditionOf(s.GetConditions(), "Available")
		return s.GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_LOST && available.GetReason() == reason && available.GetStatus() == "False" && statusOf(c, "Degraded") == "True"
	}
}

func statusOf(c *csv1.Cluster, name string) string {
	return conditionOf(c.GetStatus().GetConditions(), name).GetStatus()
}
