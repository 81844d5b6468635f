package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// fleetOf makes clusters c-0000 and so on, 20 in each subscription but for the second half, which are all in one. Those with
// even numbers have a port of their own at one address, the others a host name. All have release 4.19.3, but every hundredth 4.18.1 and one 4.18.0-rc.1, and every thousandth has failed.
func fleetOf(t testing.TB, s *store.Store, count int) (uids []string) {
	t.Helper()
	for i := range count {
		uids = append(uids, fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
	}
	const atOnce = 500
	for first := 0; first < count; first += atOnce {
		some := uids[first:min(first+atOnce, count)]
		must.Do(t, s.Update(t.Context(), some, func(_ context.Context, tx *store.Tx) error {
			for n, uid := range some {
				i := first + n
				subscription, host := fmt.Sprintf("Sub-%d", i/20), fmt.Sprintf("api.p%d.example.com", i)
				if i >= count/2 {
					subscription = "Sub-Large"
				}
				version, phase := "4.19.3", csv1.ClusterPhase_CLUSTER_PHASE_UNSPECIFIED
				if i%1000 == 999 {
					phase = csv1.ClusterPhase_CLUSTER_PHASE_FAILED
				}
				switch {
				case i == 42:
					version = "4.18.0-rc.1"
				case i%100 == 7:
					version = "4.18.1"
				}
				if i%2 == 0 {
					host = fmt.Sprintf("127.0.0.1:%d", 10000+i)
				}
				tx.Aggregates[uid].Cluster = &fleet.Cluster{UID: uid, Generation: 1, CreateTime: s.Now(), Spec: &csv1.ClusterSpec{}, Release: fleet.Release{Version: version},
					ResourceID: fmt.Sprintf("/subscriptions/%s/resourceGroups/Group-%d/providers/X/Clusters/C-%04d", subscription, i%4, i),
					Status:     &csv1.ClusterStatus{Phase: phase, ClusterId: fleet.ClusterID(uid), BaseDomainPrefix: fmt.Sprintf("p%d", i), ApiUrl: "https://" + host}}
			}
			return nil
		}))
	}
	return uids
}

// TestClustersAreFoundByIndexes checks the results of filters in any case, and that the number of rows read depends on the number
// of results and not on the number of clusters.
func TestClustersAreFoundByIndexes(t *testing.T) {
	const count = 2000
	s := openAsOwner(t)
	uids := fleetOf(t, s, count)
	tests := map[string]struct {
		reason string
		filter store.Filter
		want   []string
		// matching is how many match, where the page is shorter.
		matching int
	}{
		"resource id":            {"whole", store.Filter{Identifiers: store.Identifiers{ResourceID: "/SUBSCRIPTIONS/sub-1/resourcegroups/group-1/providers/x/clusters/c-0021"}}, uids[21:22], 1},
		"resource id, any phase": {"tombstones included", store.Filter{Phases: []int16{0}, Identifiers: store.Identifiers{ResourceID: "/subscriptions/sub-1/resourcegroups/group-1/providers/x/clusters/c-0021"}}, uids[21:22], 1},
		"resource group":         {"what begins with it", store.Filter{Identifiers: store.Identifiers{ResourceIDPrefix: "/subscriptions/sub-1/resourceGroups/group-1/"}}, []string{uids[21], uids[25], uids[29], uids[33], uids[37]}, 5},
		"name":                   {"in any casing", store.Filter{Identifiers: store.Identifiers{Name: "c-0100"}}, uids[100:101], 1},
		"no name":                {"the beginning of a name is none", store.Filter{Identifiers: store.Identifiers{Name: "c-010"}}, nil, 0},
		"beginning of names":     {"as a shell completes them", store.Filter{Identifiers: store.Identifiers{NamePrefix: "C-010"}}, uids[100:110], 10},
		"wildcard":               {"is a character", store.Filter{Identifiers: store.Identifiers{NamePrefix: "c-%"}}, nil, 0},
		"subscription":           {"all of it", store.Filter{Identifiers: store.Identifiers{Subscription: "SUB-3"}}, uids[60:80], 20},
		"page":                   {"of a subscription that is half of the fleet", store.Filter{After: uids[1499], Limit: 10, Identifiers: store.Identifiers{Subscription: "sub-large"}}, uids[1500:1510], 10},
		"cluster id":             {"below ARM", store.Filter{Identifiers: store.Identifiers{ClusterID: fleet.ClusterID(uids[7])}}, uids[7:8], 1},
		"base domain prefix":     {"unique", store.Filter{Identifiers: store.Identifiers{BaseDomainPrefix: "P77"}}, uids[77:78], 1},
		"host":                   {"without a port", store.Filter{Identifiers: store.Identifiers{APIHost: "API.p9.example.com"}}, uids[9:10], 1},
		"host and its port":      {"which need not be said in the URL", store.Filter{Identifiers: store.Identifiers{APIHost: "api.p9.example.com:443"}}, uids[9:10], 1},
		"another port":           {"is another's", store.Filter{Identifiers: store.Identifiers{APIHost: "api.p9.example.com:6443"}}, nil, 0},
		"address and port":       {"of many at one address", store.Filter{Identifiers: store.Identifiers{APIHost: "127.0.0.1:10008"}}, uids[8:9], 1},
		"version":                {"exactly", store.Filter{Version: "4.18.0-rc.1"}, uids[42:43], 1},
		"minor version":          {"all of it", store.Filter{Version: "4.18", Limit: 4}, []string{uids[7], uids[42], uids[107], uids[207]}, 4},
		"page of a version":      {"that nearly all have", store.Filter{Version: "4.19", After: uids[1006], Limit: 2}, uids[1008:1010], 2},
		"unknown version":        {"not the beginning of a number", store.Filter{Version: "4.1"}, nil, 0},
		"version and name":       {"both must match", store.Filter{Version: "4.18", Identifiers: store.Identifiers{NamePrefix: "c-010"}}, uids[107:108], 10},
		"phase":                  {"of few", store.Filter{Phases: []int16{int16(csv1.ClusterPhase_CLUSTER_PHASE_FAILED)}}, []string{uids[999], uids[1999]}, 2},
		"page of a phase":        {"of nearly all", store.Filter{Phases: []int16{0}, After: uids[997], Limit: 2}, []string{uids[998], uids[1000]}, 2},
		"phases":                 {"of few", store.Filter{Phases: []int16{int16(csv1.ClusterPhase_CLUSTER_PHASE_FAILED), int16(csv1.ClusterPhase_CLUSTER_PHASE_DELETED)}}, []string{uids[999], uids[1999]}, 2},
		"version and phase":      {"both must match", store.Filter{Version: "4.18", Phases: []int16{int16(csv1.ClusterPhase_CLUSTER_PHASE_FAILED)}}, nil, 21},
		"first page":             {"of all", store.Filter{Limit: 10}, uids[:10], 10},
		"last page":              {"of all", store.Filter{Limit: 10, After: uids[1994]}, uids[1995:], 5},
		"two":                    {"both must match", store.Filter{Identifiers: store.Identifiers{Subscription: "sub-3", Name: "c-0001"}}, nil, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.filter.Limit == 0 {
				tc.filter.Limit = 500
			}
			found, _, err := s.ListClusters(t.Context(), tc.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range found {
				got = append(got, c.UID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			// A row of each table, and one more where a range ends.
			read, plan, err := s.RowsRead(t.Context(), tc.filter)
			if err != nil {
				t.Fatal(err)
			}
			if read > float64(2*(tc.matching+1)) {
				t.Errorf("%v rows were read to find %d of %d:\n%s", read, tc.matching, count, plan)
			}
		})
	}
}

// TestFiltersFollowClusterChanges: a cluster is found by its current release and phase.
func TestFiltersFollowClusterChanges(t *testing.T) {
	s := openAsOwner(t)
	uids := fleetOf(t, s, 1)
	count := func(version string, phase csv1.ClusterPhase) int {
		t.Helper()
		found, _, err := s.ListClusters(t.Context(), store.Filter{Limit: 10, Version: version, Phases: []int16{int16(phase)}})
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	created, updating := csv1.ClusterPhase_CLUSTER_PHASE_UNSPECIFIED, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING
	if count("4.19.3", created) != 1 || count("", created) != 1 || count("4.20", created) != 0 || count("", updating) != 0 {
		t.Error("a new cluster is not found by its release and its phase")
	}
	must.Do(t, update(t.Context(), s, uids[0], func(a *fleet.ClusterAggregate) {
		a.Cluster.Release.Version, a.Cluster.Status.Phase = "4.20.0", updating
	}))
	if count("4.19.3", updating) != 0 || count("", created) != 0 || count("4.20", updating) != 1 || count("", updating) != 1 {
		t.Error("a cluster is not found by its new release and its new phase")
	}
}

// TestIdentifiersFollowClusterChanges checks that a cluster is found by its current API host, that a new release finds clusters that
// an earlier release wrote, and that a purged cluster is not found.
func TestIdentifiersFollowClusterChanges(t *testing.T) {
	ctx := t.Context()
	url := databases.Migrated(t, store.Migrations())
	s := open(t, store.Options{URL: url})
	uid := uuid.NewString()
	change := func(change func(c *fleet.Cluster)) {
		t.Helper()
		must.Do(t, update(ctx, s, uid, func(a *fleet.ClusterAggregate) { change(a.Cluster) }))
	}
	at := func(host string) int {
		t.Helper()
		found, _, err := s.ListClusters(ctx, store.Filter{Limit: 10, Identifiers: store.Identifiers{APIHost: host}})
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	change(func(*fleet.Cluster) {})
	if at("[::1]:6443") != 0 {
		t.Error("a cluster is found by a host before it has one")
	}
	change(func(c *fleet.Cluster) { c.Status.ApiUrl = "https://[::1]:6443" })
	if at("[::1]:6443") != 1 || at("::1") != 1 {
		t.Error("a cluster is not found by its new host")
	}
	change(func(c *fleet.Cluster) { c.Status.ApiUrl = "https://api.example.com" })
	if at("[::1]:6443") != 0 || at("api.example.com") != 1 {
		t.Error("a cluster is found by its old host, or not by its new one")
	}
	must.Do(t, s.ForgetIdentifiers(ctx))
	if at("api.example.com") != 0 {
		t.Fatal("a cluster without identifiers is found")
	}
	if open(t, store.Options{URL: url}); at("api.example.com") != 1 {
		t.Error("a new release does not find a cluster that an earlier release wrote")
	}
	change(func(c *fleet.Cluster) { c.DeleteTime, c.GoneTime = s.Now(), s.Now() })
	if err := s.Purge(ctx, s.Now().Add(time.Second)); err != nil {
		t.Error(err)
	}
}

// BenchmarkListClusters lists pages of fleets of two sizes, with the filters of the list of the fleet. The time of a page must not grow with the fleet:
// compare the two sizes.
func BenchmarkListClusters(b *testing.B) {
	for _, count := range []int{1000, 10000} {
		s := openAsOwner(b)
		uids := fleetOf(b, s, count)
		if _, _, err := s.RowsRead(b.Context(), store.Filter{Limit: 1}); err != nil { // with statistics, as PostgreSQL has after a while
			b.Fatal(err)
		}
		for name, filter := range map[string]store.Filter{
			"first page":  {},
			"last page":   {After: uids[count-51]},
			"version":     {Version: "4.19.3"},
			"old version": {Version: "4.18.0-rc.1"},
			"phase":       {Phases: []int16{0}},
			"no phase":    {Phases: []int16{int16(csv1.ClusterPhase_CLUSTER_PHASE_PENDING)}},
			"no shard":    {Shard: "mgmt-9"},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, count), func(b *testing.B) {
				filter.Limit = 50
				for b.Loop() {
					if _, _, err := s.ListClusters(b.Context(), filter); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
