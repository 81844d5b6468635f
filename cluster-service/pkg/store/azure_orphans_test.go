package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestAzureOrphans searches the subscription of a cluster several times.
func TestAzureOrphans(t *testing.T) {
	const lease, grace, period = time.Minute, time.Hour, 6 * time.Hour
	ctx, now := t.Context(), time.Now()
	s := open(t, store.Options{Now: func() time.Time { return now }})
	uid := uuid.NewString() // put makes it the subscription too
	must.Get(put(ctx, s, uid))(t)
	for _, scope := range []string{"dns-zone", "key-vault", "oidc-documents"} {
		must.Do(t, s.CompleteAzureSearch(ctx, scope, now, 10*period))
	}
	acquire := func(want string) {
		t.Helper()
		if scope, err := s.AcquireAzureSearch(ctx, lease); err != nil || scope != want {
			t.Fatalf("acquired %q, %v, want %q", scope, err, want)
		}
	}
	// search finds orphans in a complete search.
	search := func(orphans ...store.AzureOrphan) {
		t.Helper()
		acquire(uid)
		begin := s.Now()
		now = now.Add(time.Second)
		if omitted, err := s.SaveAzureOrphans(ctx, uid, orphans); err != nil || omitted != 0 {
			t.Fatalf("omitted %d, %v", omitted, err)
		}
		must.Do(t, s.CompleteAzureSearch(ctx, uid, begin, period))
	}
	list := func(count int) []store.AzureOrphan {
		t.Helper()
		found, err := s.ListAzureOrphans(ctx, "", grace, 10)
		if err != nil || len(found) != count {
			t.Fatalf("%d orphans: %+v, %v, want %d", len(found), found, err, count)
		}
		if byKind, _, err := s.CountAzureOrphans(ctx, grace, now); err != nil || byKind["resource-group"] != count {
			t.Fatalf("counted %v, %v, want %d", byKind, err, count)
		}
		return found
	}
	first := store.AzureOrphan{Kind: "resource-group", AzureID: "/subscriptions/s/resourceGroups/First", ClusterUID: uid, Evidence: "managedBy", Proof: "it was deleted"}
	second := store.AzureOrphan{Kind: "resource-group", AzureID: "/subscriptions/s/resourceGroups/second", ClusterUID: uid, Evidence: "managedBy"}

	search(first, second)
	list(0)
	acquire("")
	now = now.Add(period)
	acquire(uid) // this search is interrupted
	acquire("")
	now = now.Add(lease)

	first.AzureID, first.Proof = "/subscriptions/s/resourceGroups/first", ""
	search(first, second)
	for _, o := range list(2) {
		if want := map[string]string{"/subscriptions/s/resourceGroups/First": "it was deleted", "/subscriptions/s/resourceGroups/second": ""}; o.Proof != want[o.AzureID] || o.LastTime.Sub(o.FirstTime) < period {
			t.Errorf("listed %+v", o)
		}
	}
	page, err := s.ListAzureOrphans(ctx, list(2)[0].UID, grace, 10)
	if err != nil || len(page) != 1 {
		t.Errorf("the second page is %+v, %v", page, err)
	}

	now = now.Add(period)
	first.ClusterUID = uuid.NewString()
	search(first)
	if left := list(1)[0]; left.AzureID != "/subscriptions/s/resourceGroups/First" || left.Proof != "" {
		t.Errorf("another cluster has the proof, or the wrong orphan is left: %+v", left)
	}

	call, orphanUID := func(id string) context.Context { return store.WithCallID(ctx, id) }, list(1)[0].UID
	if o, err := s.FindAzureOrphan(call("call"), orphanUID, grace); err != nil || o.AzureID != "/subscriptions/s/resourceGroups/First" {
		t.Errorf("found %+v, %v", o, err)
	}
	must.Do(t, s.EndAzureOrphanDeletion(call("call"), orphanUID, false))
	list(1)
	if _, err := s.FindAzureOrphan(call("call"), orphanUID, grace); !errors.Is(err, store.ErrCallRepeated) {
		t.Errorf("a repeated call: %v", err)
	}
	must.Do(t, s.EndAzureOrphanDeletion(call("another call"), orphanUID, true))
	list(0)
	if _, err := s.FindAzureOrphan(ctx, orphanUID, grace); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a deleted orphan: %v", err)
	}

	if _, overdue, err := s.CountAzureOrphans(ctx, grace, now.Add(time.Second)); err != nil || overdue != 4 { // with those of the region
		t.Errorf("%d searches are overdue, %v", overdue, err)
	}
	if forgotten, err := s.ForgetAzureSubscription(ctx, uid); err != nil || forgotten {
		t.Errorf("a subscription with a cluster was removed: %v, %v", forgotten, err)
	}
	now = now.Add(period)
	search()
	list(0)
}

// TestSubscriptionWithoutClustersIsForgotten removes the scope of a subscription after the tombstones of its clusters.
func TestSubscriptionWithoutClustersIsForgotten(t *testing.T) {
	ctx := t.Context()
	s := open(t, store.Options{})
	uid := uuid.NewString()
	must.Get(put(ctx, s, uid))(t)
	orphan := store.AzureOrphan{Kind: "resource-group", AzureID: "/subscriptions/s/resourceGroups/g"}
	must.Get(s.SaveAzureOrphans(ctx, uid, []store.AzureOrphan{orphan}))(t)
	must.Do(t, end(ctx, s, uid))
	for i, want := range []bool{false, true, false} {
		if forgotten, err := s.ForgetAzureSubscription(ctx, uid); err != nil || forgotten != want {
			t.Errorf("call %d: %v, %v, want %v", i, forgotten, err, want)
		}
		must.Do(t, s.Purge(ctx, s.Now().Add(time.Hour)))
	}
	if left, err := s.ListAzureOrphans(ctx, "", 0, 10); err != nil || len(left) > 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}
