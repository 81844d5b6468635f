package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// began is when the oldest concern of waitingFleet began.
var began = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// waitingFleet makes clusters of which every tenth waits: the first ones longest, for their control planes or, every second one,
// for nodes of a pool. It returns the UIDs of those that wait, the oldest first.
func waitingFleet(t testing.TB, s *store.Store, count int) (waiting []string) {
	t.Helper()
	uids := fleetOf(t, s, count)
	for first := 0; first < count; first += 500 {
		some := uids[first:min(first+500, count)]
		must.Do(t, s.Update(t.Context(), some, func(_ context.Context, tx *store.Tx) error {
			for n, uid := range some {
				i, a := first+n, tx.Aggregates[uid]
				a.Cluster.Status.Phase = csv1.ClusterPhase_CLUSTER_PHASE_READY
				at := timestamppb.New(began.Add(time.Duration(i) * time.Minute))
				switch i % 20 {
				case 0:
					a.Cluster.Status.Progress = []*csv1.LayerProgress{{Layer: "control-plane", State: "EtcdWaitingForQuorum", Since: at}}
				case 10:
					id := uuid.NewString()
					a.Pools = append(a.Pools, &fleet.NodePool{UID: id, ClusterUID: uid, ResourceID: a.Cluster.ResourceID + "/nodePools/np", CreateTime: s.Now(), Spec: &csv1.NodePoolSpec{},
						Status: &csv1.NodePoolStatus{Phase: csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING, Progress: []*csv1.LayerProgress{{Layer: "node-pool", State: "WaitingForNodes", Since: at}}}})
				}
			}
			return nil
		}))
	}
	for i := 0; i < count; i += 10 {
		waiting = append(waiting, uids[i])
	}
	return waiting
}

func concernsOf(t *testing.T, s *store.Store, f store.ConcernFilter) (uids []string, last store.ClusterConcern) {
	t.Helper()
	concerns := must.Get(s.ListConcerns(t.Context(), f))(t)
	for _, c := range concerns {
		uids, last = append(uids, c.UID), c
	}
	return uids, last
}

// TestConcernsAreFoundByAge checks filters, order and pages, and that a page reads as many rows as it has, in a fleet of any size.
func TestConcernsAreFoundByAge(t *testing.T) {
	const count = 2000
	s := openAsOwner(t)
	waiting := waitingFleet(t, s, count)
	all, _ := concernsOf(t, s, store.ConcernFilter{Limit: count})
	if diff := cmp.Diff(waiting, all); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	if old, last := concernsOf(t, s, store.ConcernFilter{Limit: count, SinceBefore: began.Add(40 * time.Minute)}); !cmp.Equal(old, waiting[:5]) || !last.Since.Equal(began.Add(40*time.Minute)) {
		t.Errorf("those of 40 minutes: %v", old)
	}
	for _, concern := range []string{"node-pool", "node-pool/WaitingForNodes"} {
		if pools, last := concernsOf(t, s, store.ConcernFilter{Limit: 2, Concerns: []string{concern, "unknown"}}); !cmp.Equal(pools, []string{waiting[1], waiting[3]}) ||
			last.SubjectID != last.ResourceID+"/nodePools/np" || last.State != "WaitingForNodes" {
			t.Errorf("%s: %v, last %+v", concern, pools, last)
		}
	}
	known, err := s.ConcernsOf(t.Context(), append([]string{uuid.NewString()}, waiting[:2]...))
	if err != nil || len(known) != 2 || known[waiting[0]].Layer != "control-plane" || known[waiting[1]].Layer != "node-pool" {
		t.Errorf("the concerns of two clusters: %v, %v", known, err)
	}
	if none, _ := concernsOf(t, s, store.ConcernFilter{Limit: 2, Shard: "mgmt-9"}); len(none) > 0 {
		t.Errorf("on another shard: %v", none)
	}
	for version, want := range map[string]int{"4.19": 200, "4.19.3": 200, "4.1": 0, "4.18": 0} {
		if found, _ := concernsOf(t, s, store.ConcernFilter{Limit: count, Version: version}); len(found) != want {
			t.Errorf("%d clusters with version %s wait, want %d", len(found), version, want)
		}
	}
	_, last := concernsOf(t, s, store.ConcernFilter{Limit: 50})
	page := store.ConcernFilter{Limit: 50, AfterSince: last.Since, AfterUID: last.UID}
	if next, _ := concernsOf(t, s, page); !cmp.Equal(next, waiting[50:100]) {
		t.Errorf("the second page: %v", next)
	}
	// A concern and its cluster for each item of the page.
	if read, plan, err := s.ConcernRowsRead(t.Context(), page); err != nil || read > 2*(50+1) {
		t.Errorf("%v rows were read for 50 of %d: %v\n%s", read, count, err, plan)
	}
	groups := must.Get(s.SummarizeConcerns(t.Context(), ""))(t)
	want := []store.ConcernGroup{
		{Layer: "control-plane", State: "EtcdWaitingForQuorum", Version: "4.19.3", Clusters: 100, Oldest: began},
		{Layer: "node-pool", State: "WaitingForNodes", Version: "4.19.3", Clusters: 100, Oldest: began.Add(10 * time.Minute)},
	}
	if diff := cmp.Diff(want, groups, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestConcernsFollowClusterChanges checks that a concern appears, changes and ends with the cluster's state, and that a new release
// finds those of clusters that an earlier release wrote.
func TestConcernsFollowClusterChanges(t *testing.T) {
	ctx := t.Context()
	url := databases.Migrated(t, store.Migrations())
	s := open(t, store.Options{URL: url})
	uid := uuid.NewString()
	check := func(want string, change func(c *fleet.Cluster)) {
		t.Helper()
		must.Do(t, update(ctx, s, uid, func(a *fleet.ClusterAggregate) { change(a.Cluster) }))
		got := ""
		if _, last := concernsOf(t, s, store.ConcernFilter{Limit: 10}); last.Layer != "" {
			got = fmt.Sprintf("%s/%s", last.Layer, last.State)
		}
		if got != want {
			t.Errorf("the concern is %q, want %q", got, want)
		}
	}
	entry := func(state string) []*csv1.LayerProgress {
		return []*csv1.LayerProgress{{Layer: "control-plane", State: state, Since: timestamppb.New(began)}}
	}
	check("cluster-service/UNSPECIFIED", func(*fleet.Cluster) {})
	check("", func(c *fleet.Cluster) { c.Status.Phase = csv1.ClusterPhase_CLUSTER_PHASE_READY })
	check("control-plane/Waiting", func(c *fleet.Cluster) { c.Status.Progress = entry("Waiting") })
	must.Do(t, s.ForgetConcerns(ctx))
	s = open(t, store.Options{URL: url})
	check("control-plane/Waiting", func(*fleet.Cluster) {})
	check("", func(c *fleet.Cluster) { c.Status.Progress = entry("Available") })
	check("deletion/Deleting", func(c *fleet.Cluster) { c.DeleteTime = s.Now() })
	check("deletion/namespaces", func(c *fleet.Cluster) {
		c.Status.Deletion = &csv1.Deletion{Steps: []*csv1.DeletionStep{{Name: "namespaces", Kind: "namespaces", State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING}}}
	})
	check("", func(c *fleet.Cluster) { c.GoneTime = s.Now() })
	if err := s.Purge(ctx, s.Now().Add(time.Second)); err != nil {
		t.Error(err)
	}
}

// BenchmarkListConcerns lists the hundred oldest concerns of fleets in which a tenth of the clusters waits. The time per page must
// not grow with the fleet: compare the two sizes.
func BenchmarkListConcerns(b *testing.B) {
	for _, count := range []int{1000, 10000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			s := open(b, store.Options{})
			waitingFleet(b, s, count)
			for b.Loop() {
				if concerns, err := s.ListConcerns(b.Context(), store.ConcernFilter{Limit: 100}); err != nil || len(concerns) != 100 {
					b.Fatal(len(concerns), err)
				}
			}
		})
	}
}
