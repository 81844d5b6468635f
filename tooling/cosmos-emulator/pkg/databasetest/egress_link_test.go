package databasetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestEgressLinksAreAssignedAndFollowed assigns, changes and removes links. The documents and the feed have the last state of each.
func TestEgressLinksAreAssignedAndFollowed(t *testing.T) {
	db, _ := databasetest.New(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Millisecond)
	assign := func(id uint32, cluster, operation string, at time.Time, hosts ...string) error {
		_, err := db.AssignEgressLink(ctx, id, database.EgressLinkDocument{ClusterUID: cluster, ResourceID: "/" + cluster, Hosts: hosts, OperationID: operation, RequestTime: at}, at)
		return err
	}
	if _, err := db.RemoveEgressLink(ctx, 1, "a", "none", now, now); apierror.As(err).Kind != apierror.NotFound {
		t.Errorf("an unknown link was removed: %v", err)
	}
	for _, err := range []error{
		assign(1, "a", "one", now, "a.example"), assign(1, "a", "one", now, "a.example"), assign(1, "a", "two", now.Add(time.Second), "b.example", "c.example"),
		assign(2, "b", "three", now),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	must.Get(db.RemoveEgressLink(ctx, 2, "b", "four", now.Add(time.Second), now))(t)
	if err := assign(2, "a", "five", now.Add(2*time.Second)); apierror.As(err).Kind != apierror.Conflict {
		t.Errorf("a link in quarantine was assigned to another cluster: %v", err)
	}
	want := map[string]database.EgressLinkDocument{
		"1": {LinkID: "1", Generation: 1, ClusterUID: "a", ResourceID: "/a", Hosts: []string{"b.example", "c.example"}, OperationID: "two", RequestTime: now.Add(time.Second)},
		"2": {LinkID: "2", Generation: 1, ClusterUID: "b", ResourceID: "/b", OperationID: "four", RequestTime: now.Add(time.Second), RemovedTime: &now},
	}
	listed := map[string]database.EgressLinkDocument{}
	must.Do(t, db.EachEgressLink(ctx, func(item *database.Item[database.EgressLinkDocument]) error {
		listed[item.Value.LinkID] = item.Value
		return nil
	}))
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Error(diff)
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	followed := map[string]database.EgressLinkDocument{}
	_ = db.TailEgressLinks(following, now.Add(-time.Minute), database.FeedOptions{IdleInterval: 10 * time.Millisecond, Read: func() {
		if len(followed) == len(want) {
			stop()
		}
	}}, func(_ context.Context, changes []database.Change) error {
		for _, change := range changes {
			item, err := database.DecodeChange(db.EgressLinks(), change)
			if err != nil {
				return err
			}
			followed[item.Value.LinkID] = item.Value
		}
		return nil
	})
	if diff := cmp.Diff(want, followed); diff != "" {
		t.Error(diff)
	}
}
