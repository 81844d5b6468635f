package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRepairedRemovals checks that removals are listed newest first when their objects exist again, also if both happened before the first
// report, and that old ones, and those of clusters that are gone, are not listed.
func TestRepairedRemovals(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	s := open(t, store.Options{Now: func() time.Time { return now }})
	uids := fleetOf(t, s, 3)
	removed := func(name string, at time.Time, repairedAfter time.Duration) *csv1.ObjectRemoval {
		r := &csv1.ObjectRemoval{Kind: "Secret", Namespace: "ocm-local-x", Name: name, Uid: name, ProvisionShard: "mgmt-1", RemoveTime: timestamppb.New(at)}
		if repairedAfter > 0 {
			r.AppliedAgainTime = timestamppb.New(at.Add(repairedAfter))
		}
		return r
	}
	set := func(uid string, gone time.Time, removals ...*csv1.ObjectRemoval) {
		t.Helper()
		must.Do(t, update(t.Context(), s, uid, func(a *fleet.ClusterAggregate) {
			a.Cluster.Status.Removals, a.Cluster.DeleteTime, a.Cluster.GoneTime = removals, gone, gone
		}))
	}
	expect := func(reason string, limit int, want ...string) {
		t.Helper()
		found := must.Get(s.RepairedRemovals(t.Context(), now.Add(-24*time.Hour), limit))(t)
		var names []string
		for _, r := range found {
			if r.GetClusterUid() == "" || r.GetClusterResourceId() == "" {
				t.Errorf("%s: the cluster of %v is unknown", reason, r)
			}
			names = append(names, r.GetRemoval().GetName())
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	expect("nothing was removed", 10)
	set(uids[0], time.Time{}, removed("open", now.Add(-time.Minute), 0), removed("first", now.Add(-time.Hour), time.Second))
	now = now.Add(time.Second)
	set(uids[1], time.Time{}, removed("second", now.Add(-time.Minute), 2*time.Second), removed("old", now.Add(-25*time.Hour), time.Second))
	expect("one is not repaired, one is old", 10, "second", "first")
	expect("the limit", 1, "second")
	set(uids[0], time.Time{}, removed("open", now.Add(-time.Minute), time.Minute), removed("first", now.Add(-time.Hour), time.Second))
	set(uids[1], now, removed("second", now.Add(-time.Minute), 2*time.Second))
	expect("one is repaired later, and one cluster is gone", 10, "open", "first")
	now = now.Add(24 * time.Hour)
	expect("a day later", 10)
}
