package databasetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestAdminRecordsAreOrdered lists operations and elevations, newest first, over pages and with filters.
func TestAdminRecordsAreOrdered(t *testing.T) {
	db := databasetest.NewServer(t).Open(t)
	ctx := t.Context()
	must.Do(t, db.EnsureSchema(ctx))
	start := time.Now().UTC()
	for i := range 7 {
		id, at := fmt.Sprintf("%d", i), start.Add(time.Duration(i)*time.Second)
		actor := database.AdminActor{Name: "alice", ObjectID: []string{"alice", "bob"}[i%2], Reason: "why", Role: "operator"}
		batch := db.NewBatch(database.AdminPartition)
		if i == 3 {
			database.Create(batch, db.Elevations(), database.ElevationKey(id), database.ElevationDocument{
				ElevationID: id, SortKey: database.AdminSortKey(at, id), Actor: actor, State: database.ElevationActive, Emergency: true, RequestTime: at, StartTime: at, ExpirationTime: at.Add(time.Hour),
			})
		} else {
			o := database.AdminOperationDocument{
				OperationID: id, SortKey: database.AdminSortKey(at, id), Actor: actor, State: database.AdminAccepted, StartTime: at,
				Target: database.AdminTarget{Kind: "cluster", ID: "c", ClusterUID: []string{"one", "two"}[i/4]},
			}
			if i < 2 {
				o.End(database.AdminSucceeded, nil, at)
			}
			database.Create(batch, db.AdminOperations(), database.AdminOperationKey(id), o)
		}
		must.Do(t, batch.Commit(ctx))
	}
	list := func(filter database.AdminFilter, size int) []string {
		ids := []string{}
		for continuation := ""; ; {
			records, next, err := db.AdminRecords(ctx, filter, continuation, size)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				if r.Elevation != nil {
					ids = append(ids, "elevation "+r.Elevation.Value.ElevationID)
					continue
				}
				ids = append(ids, r.Operation.Value.OperationID)
			}
			if next == "" {
				return ids
			}
			continuation = next
		}
	}
	operations := []database.Kind{database.AdminOperationKind}
	cases := map[string]struct {
		reason string
		filter database.AdminFilter
		want   []string
	}{
		"all":      {"one order for all kinds", database.AdminFilter{}, []string{"6", "5", "4", "elevation 3", "2", "1", "0"}},
		"kind":     {"of one kind", database.AdminFilter{Kinds: operations}, []string{"6", "5", "4", "2", "1", "0"}},
		"caller":   {"of one caller", database.AdminFilter{ObjectID: "bob"}, []string{"5", "elevation 3", "1"}},
		"cluster":  {"of one cluster", database.AdminFilter{Target: "two"}, []string{"6", "5", "4"}},
		"state":    {"in one state", database.AdminFilter{State: string(database.AdminSucceeded)}, []string{"1", "0"}},
		"review":   {"emergencies without a review", database.AdminFilter{UnreviewedOnly: true}, []string{"elevation 3"}},
		"underway": {"active records only", database.AdminFilter{Kinds: operations, ActiveOnly: true}, []string{"6", "5", "4", "2"}},
	}
	for name, tc := range cases {
		for _, size := range []int{1, 2, 100} {
			if got := list(tc.filter, size); !slices.Equal(got, tc.want) {
				t.Errorf("%s: %s: in pages of %d: %v, not %v", name, tc.reason, size, got, tc.want)
			}
		}
	}
}

// TestOpenElevationsCostTheSame reads the open elevations of an engineer, as admin does for each action, before and after many more
// actions and elevations of the engineer. The emulator must parse the same number of documents.
func TestOpenElevationsCostTheSame(t *testing.T) {
	server := databasetest.NewServer(t)
	db := server.Open(t)
	ctx := t.Context()
	must.Do(t, db.EnsureSchema(ctx))
	now, created := time.Now().UTC(), 0
	actor := database.AdminActor{Name: "alice", ObjectID: "alice", Reason: "why", Role: "operator"}
	act := func(n int) {
		t.Helper()
		batch := db.NewBatch(database.AdminPartition)
		for range n {
			created++
			id := fmt.Sprintf("o%d", created)
			database.Create(batch, db.AdminOperations(), database.AdminOperationKey(id), database.AdminOperationDocument{
				OperationID: id, SortKey: database.AdminSortKey(now, id), Actor: actor, State: database.AdminAccepted, StartTime: now, Intent: strings.Repeat("x", 1000),
			})
		}
		must.Do(t, batch.Commit(ctx))
	}
	elevate := func(id string, at time.Time) {
		t.Helper()
		batch := db.NewBatch(database.AdminPartition)
		database.Create(batch, db.Elevations(), database.ElevationKey(id), database.ElevationDocument{
			ElevationID: id, SortKey: database.AdminSortKey(at, id), Actor: actor, State: database.ElevationActive, RequestTime: at, StartTime: at, ExpirationTime: at.Add(time.Hour),
		})
		must.Do(t, batch.Commit(ctx))
	}
	cost := func() float64 {
		t.Helper()
		server.Charge()
		filter := database.AdminFilter{Kinds: []database.Kind{database.ElevationKind}, ObjectID: "alice", ActiveOnly: true, Since: now.Add(-time.Hour)}
		records, _, err := db.AdminRecords(ctx, filter, "", 100)
		if err != nil || len(records) != 1 || records[0].Elevation.Value.ElevationID != "now" {
			t.Fatalf("got %v, %v", records, err)
		}
		return server.Charge()
	}
	elevate("now", now)
	elevate("expired", now.Add(-24*time.Hour))
	act(10)
	few := cost()
	for range 4 {
		act(50)
	}
	if many := cost(); many != few || few == 0 {
		t.Errorf("the query costs %.2f request units after 10 actions, and %.2f after 210", few, many)
	}
}

// TestFind finds clusters and operations across subscriptions.
func TestFind(t *testing.T) {
	db := databasetest.NewServer(t).Open(t)
	ctx := t.Context()
	must.Do(t, db.EnsureSchema(ctx))
	for _, subscription := range []string{"a", "b"} {
		id := "/subscriptions/" + subscription + "/resourceGroups/g/providers/" + hub.ClusterResourceType + "/Same"
		key := must.Get(database.ResourceKey(id))(t)
		batch := db.NewBatch(subscription)
		database.Create(batch, db.Clusters(), key, database.ClusterDocument{UID: "uid-" + subscription, Cluster: hub.Cluster{Resource: hub.Resource{ID: id, Name: "Same"}}})
		for suffix, resource := range map[string]string{"own": id, "pool": id + "/nodePools/np", "other": id + "2"} {
			database.Create(batch, db.Operations(), database.OperationKey(subscription, "l", subscription+"-"+suffix), database.OperationDocument{
				OperationID: subscription + "-" + suffix, ResourceID: resource, Status: hub.Accepted,
			})
		}
		must.Do(t, batch.Commit(ctx))
	}
	for name, want := range map[string]int{"same": 2, "sam": 0, "uid-a": 0} {
		found := 0
		if err := db.ClustersByName(ctx, name, func(*database.Item[database.ClusterDocument]) error { found++; return nil }); err != nil || found != want {
			t.Errorf("%d clusters have the name %q, want %d: %v", found, name, want, err)
		}
	}
	if item, err := db.ClusterByUID(ctx, "UID-A"); err != nil || item == nil || item.Key.SubscriptionID != "a" {
		t.Errorf("the cluster with the UID is %+v: %v", item, err)
	}
	if item, err := db.ClusterByUID(ctx, "same"); err != nil || item != nil {
		t.Errorf("an unknown UID: %+v, %v", item, err)
	}
	item, err := db.OperationByID(ctx, "b-pool")
	if err != nil || item == nil || item.Key.SubscriptionID != "b" {
		t.Errorf("the operation is %+v: %v", item, err)
	}
	if item, err := db.OperationByID(ctx, "c"); err != nil || item != nil {
		t.Errorf("an unknown operation: %+v, %v", item, err)
	}
	key, _ := database.ResourceKey("/subscriptions/a/resourceGroups/G/providers/" + hub.ClusterResourceType + "/same")
	var ids []string
	err = db.ResourceOperations(ctx, key, func(item *database.Item[database.OperationDocument]) error {
		ids = append(ids, item.Value.OperationID)
		return nil
	})
	slices.Sort(ids)
	if err != nil || !slices.Equal(ids, []string{"a-own", "a-pool"}) {
		t.Errorf("the cluster's operations are %v: %v", ids, err)
	}
}
