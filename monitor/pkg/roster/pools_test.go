package roster

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
)

// TestNodesOfAClusterFollowItsPools sends node pools before and after their cluster, changes and deletes them, and lets a new watch leave
// one out.
func TestNodesOfAClusterFollowItsPools(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	l := &listener{entries: map[string]Entry{}}
	r := New(nil, l, Options{Log: slog.New(slog.DiscardHandler)})
	pool := func(uid string, change func(*clusterservicev1.NodePool)) {
		p := &clusterservicev1.NodePool{Uid: uid, ClusterUid: "a", CreateTime: timestamppb.New(began), Spec: &clusterservicev1.NodePoolSpec{Name: uid}, Status: &clusterservicev1.NodePoolStatus{}}
		change(p)
		r.Changed(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_NodePool{NodePool: p}})
	}
	cluster := func() {
		r.Changed(&clusterservicev1.WatchResponse{Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: "a"}}})
	}
	fixed := func(wanted, ready int32, conditions ...*clusterservicev1.Condition) func(*clusterservicev1.NodePool) {
		return func(p *clusterservicev1.NodePool) {
			p.Spec.Size = &clusterservicev1.NodePoolSpec_Replicas{Replicas: wanted}
			p.Status.Replicas, p.Status.Conditions = ready, conditions
		}
	}
	broken := func(kind string, after time.Duration) *clusterservicev1.Condition {
		return &clusterservicev1.Condition{Type: kind, Status: "False", Message: "m", LastTransitionTime: timestamppb.New(began.Add(after))}
	}
	problem := func(pool string, after time.Duration) judge.Condition {
		return judge.Condition{Part: judge.Part{Status: "False", Since: began.Add(after)}, Pool: pool, Message: "m"}
	}
	expect := func(reason string, want judge.Nodes) {
		t.Helper()
		if diff := cmp.Diff(want, l.entries["a"].Cluster.Nodes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	pool("p1", fixed(3, 3))
	cluster()
	expect("a pool before its cluster", judge.Nodes{Wanted: 3, Ready: 3})
	pool("p2", func(p *clusterservicev1.NodePool) {
		p.Spec.Size = &clusterservicev1.NodePoolSpec_Autoscaling{Autoscaling: &clusterservicev1.NodePoolAutoscaling{Min: 2, Max: 9}}
		p.Status.Replicas = 5
	})
	expect("an autoscaled pool", judge.Nodes{Wanted: 5, Ready: 8})
	pool("p1", fixed(3, 1, broken("AllMachinesReady", time.Hour), broken("AllNodesHealthy", time.Minute)))
	pool("p2", fixed(2, 0, broken("AllMachinesReady", time.Minute), &clusterservicev1.Condition{Type: "AllNodesHealthy", Status: "True"}))
	expect("the problem that began first", judge.Nodes{Wanted: 5, Ready: 1, Machines: problem("p2", time.Minute), Healthy: problem("p1", time.Minute)})
	r.CaughtUp()
	r.Restarted()
	pool("p1", fixed(3, 3))
	cluster()
	r.CaughtUp()
	expect("a pool that a new watch does not send", judge.Nodes{Wanted: 3, Ready: 3})
	pool("p1", func(p *clusterservicev1.NodePool) {
		fixed(3, 3)(p)
		p.DeleteTime = timestamppb.New(began)
	})
	expect("a pool that is being deleted", judge.Nodes{})
	pool("p1", func(p *clusterservicev1.NodePool) {
		p.Status.Phase = clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED
	})
	r.remove("a")
	if left := len(r.pools) + len(r.poolsOf) + len(r.entries); left != 0 {
		t.Errorf("%d pools, pools of %d clusters and %d clusters are left", len(r.pools), len(r.poolsOf), len(r.entries))
	}
}
