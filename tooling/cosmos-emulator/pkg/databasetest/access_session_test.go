package databasetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// TestAccessSessionsAreSelectedAndFollowed stores sessions of two clusters. Filters select them, a change is conditioned on the document, and
// the feed reports changes of no other container.
func TestAccessSessionsAreSelectedAndFollowed(t *testing.T) {
	db, _ := databasetest.New(t)
	ctx := t.Context()
	now := time.Now().UTC()
	for id, v := range map[string]database.AccessSessionDocument{
		"one": {ClusterUID: "a", Owner: database.AdminActor{ElevationID: "first"}}, "two": {ClusterUID: "a", Owner: database.AdminActor{ElevationID: "second"}},
		"three": {ClusterUID: "b", Owner: database.AdminActor{ElevationID: "first"}},
	} {
		v.SessionID, v.State, v.SealedKeys, v.ElevationExpirationTime = id, database.AccessSessionRequested, [][]byte{[]byte("sealed")}, now.Add(time.Hour)
		key := database.AccessSessionKey(v.ClusterUID, id)
		batch := db.NewBatch(key.SubscriptionID)
		database.Create(batch, db.AccessSessions(), key, v)
		must.Do(t, batch.Commit(ctx))
	}
	for range 2 {
		ended, err := db.ChangeAccessSession(ctx, database.AccessSessionKey("a", "two"), func(v *database.AccessSessionDocument) (bool, error) {
			return v.End("alice", "done", now), nil
		})
		if err != nil || ended.State != database.AccessSessionEnded || len(ended.SealedKeys) > 0 {
			t.Fatalf("ended %+v: %v", ended, err)
		}
	}
	if unknown, err := db.ChangeAccessSession(ctx, database.AccessSessionKey("b", "two"), nil); unknown != nil || err != nil {
		t.Errorf("a session of another cluster: %+v, %v", unknown, err)
	}
	for reason, tc := range map[string]struct {
		filter database.AccessSessionFilter
		want   []string
	}{
		"all":             {database.AccessSessionFilter{}, []string{"one", "three", "two"}},
		"of a cluster":    {database.AccessSessionFilter{ClusterUID: "a"}, []string{"one", "two"}},
		"of an elevation": {database.AccessSessionFilter{ElevationID: "first"}, []string{"one", "three"}},
		"open":            {database.AccessSessionFilter{ClusterUID: "a", OpenOnly: true}, []string{"one"}},
		"by ID":           {database.AccessSessionFilter{ID: "three"}, []string{"three"}},
	} {
		var got []string
		err := db.EachAccessSession(ctx, tc.filter, func(item *database.Item[database.AccessSessionDocument]) error {
			got = append(got, item.Value.SessionID)
			return nil
		})
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %s%v", reason, diff, err)
		}
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	states := map[string]database.AccessSessionState{}
	_ = db.TailAccessSessions(following, now.Add(-time.Minute), database.FeedOptions{IdleInterval: 10 * time.Millisecond, Read: func() {
		if len(states) == 3 {
			stop()
		}
	}}, func(_ context.Context, changes []database.Change) error {
		for _, change := range changes {
			item, err := database.DecodeChange(db.AccessSessions(), change)
			if err != nil {
				return err
			}
			states[item.Value.SessionID] = item.Value.State
		}
		return nil
	})
	want := map[string]database.AccessSessionState{"one": database.AccessSessionRequested, "two": database.AccessSessionEnded, "three": database.AccessSessionRequested}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Error(diff)
	}
}
