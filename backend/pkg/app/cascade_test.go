package app_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// cascadeClusters is the number of clusters in the subscription of TestCascade.
var cascadeClusters = nightly.Choose(120, 10_000)

// setSubscription writes what the frontend writes for a PUT of a subscription.
func (r *region) setSubscription(id string, state hub.SubscriptionState) {
	r.t.Helper()
	must.Do(r.t, database.Retry(r.t.Context(), func(ctx context.Context) error {
		item, err := r.db.Subscriptions().Find(ctx, database.SubscriptionKey(id))
		if err != nil {
			return err
		}
		batch := r.db.NewBatch(id)
		if item == nil {
			database.Create(batch, r.db.Subscriptions(), database.SubscriptionKey(id), database.SubscriptionDocument{Subscription: hub.Subscription{State: state}})
		} else {
			item.Value.Subscription.State = state
			database.Replace(batch, item)
		}
		return batch.Commit(ctx)
	}))
}

// seedClusters creates Succeeded clusters in the store and the fleet.
func (r *region) seedClusters(sub string, count int) (uids []string) {
	r.t.Helper()
	const perBatch = 30
	for first := 0; first < count; first += perBatch {
		r.commit(sub, func(batch *database.Batch) {
			for i := first; i < min(first+perBatch, count); i++ {
				key, uid := clusterKey(sub, fmt.Sprintf("c%05d", i)), uuid.NewString()
				document := newCluster(key, uid)
				document.ProvisioningState = hub.Succeeded
				document.Fleet = database.FleetState{AcceptedGeneration: 1, ObservedGeneration: 1, Phase: "Ready"}
				database.Create(batch, r.db.Clusters(), key, document)
				for reserved, reservation := range database.ClusterReservations(key, &document) {
					database.Create(batch, r.db.Reservations(), reserved, reservation)
				}
				r.fleet.mu.Lock()
				r.fleet.clusters[uid] = &clusterservicev1.Cluster{
					Uid: uid, ResourceId: key.ResourceID, Generation: 1, Spec: &clusterservicev1.ClusterSpec{Name: document.Cluster.Name},
					Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, ObservedGeneration: 1},
				}
				r.fleet.clusters[uid].Revision = r.fleet.next(uid)
				r.fleet.mu.Unlock()
				uids = append(uids, uid)
			}
		})
	}
	return uids
}

// emptied reports whether the subscription is recorded to have no clusters left.
func (r *region) emptied(sub string) bool {
	item, err := r.db.Subscriptions().Find(r.t.Context(), database.SubscriptionKey(sub))
	return err == nil && item != nil && item.Value.EmptiedTime != nil
}

// deletions counts the operations that delete a cluster of the subscription, by UID. It reads the change feed up to a
// write of its own, because the emulator needs long for a query of so many pages.
func (r *region) deletions(sub string) map[string]int {
	r.t.Helper()
	r.setSubscription(sub, hub.Deleted)
	last := must.Get(r.db.Subscriptions().Get(r.t.Context(), database.SubscriptionKey(sub)))(r.t)
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	counts, done := map[string]int{}, false
	_ = r.db.Tail(ctx, time.Unix(0, 0), database.FeedOptions{PageSize: 1000}, func(_ context.Context, changes []database.Change) error {
		for _, change := range changes {
			switch change.Kind {
			case database.SubscriptionKind:
				item, err := database.DecodeChange(r.db.Subscriptions(), change)
				if done = done || err == nil && item.ETag == last.ETag; done {
					cancel()
				}
			case database.OperationKind:
				item, err := database.DecodeChange(r.db.Operations(), change)
				if err != nil {
					return err
				}
				if item.Value.Request == database.DeleteRequest && item.Value.ResourceType == hub.ClusterResourceType {
					counts[item.Value.UID]++
				}
			}
		}
		return nil
	})
	if !done {
		r.t.Fatal("the end of the change feed was not reached")
	}
	return counts
}

// createWithFence is createCluster like the frontend for a subscription that was Registered when it was read, perhaps
// some time ago.
func (r *region) createWithFence(key database.Key) (uid string, err error) {
	uid = uuid.NewString()
	opKey, op := newOperation(database.CreateRequest, key, uid, 1)
	document := newCluster(key, uid)
	document.ProvisioningState, document.ActiveOperationID = hub.Accepted, op.OperationID
	err = database.Retry(r.t.Context(), func(ctx context.Context) error {
		batch := r.db.NewBatch(key.SubscriptionID)
		if err := r.db.AddFence(ctx, batch); err != nil {
			return err
		}
		database.Create(batch, r.db.Clusters(), key, document)
		database.Create(batch, r.db.Operations(), opKey, op)
		return batch.Commit(ctx)
	})
	return uid, err
}

// TestCascade deletes a subscription with many clusters. Meanwhile some clusters are changed, some have node pools,
// others are created by requests that began earlier, and the backend crashes several times.
func TestCascade(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r.setSubscription(subscription, hub.Registered)
	uids := r.seedClusters(subscription, cascadeClusters)
	for i := 0; i < len(uids); i += max(len(uids)/10, 1) {
		key := clusterKey(subscription, fmt.Sprintf("c%05d", i))
		switch i % 3 {
		case 0:
			r.createPool(key, "np")
		case 1:
			r.change(key, database.UpdateRequest)
		default:
			r.change(key, database.DeleteRequest)
		}
	}
	r.setSubscription(subscription, hub.Deleted)

	// Creates that have read the subscription before continue until the fences are closed.
	var created []string
	var wg sync.WaitGroup
	var mu sync.Mutex
	for creator := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				uid, err := r.createWithFence(clusterKey(subscription, fmt.Sprintf("b%d-%d", creator, i)))
				switch {
				case err == nil:
				case apierror.KindOf(err) == apierror.InvalidSubscriptionState || t.Context().Err() != nil:
					return
				default:
					continue
				}
				mu.Lock()
				created = append(created, uid)
				mu.Unlock()
			}
		})
	}

	crashes := 0
	// Each cluster takes about seven steps, with a crash point before and after each.
	for range 6 {
		if r.runUntilCrash(1+2*(10+random.IntN(len(uids)))+random.IntN(2), func() bool { return r.emptied(subscription) }) {
			crashes++
		}
	}
	started := time.Now()
	r.start("backend-0")
	// Wait only when a backend runs that does not crash: if all crashed before the fences were closed, creates would
	// not stop.
	wg.Wait()
	r.eventually("emptying the subscription", func() string {
		if r.emptied(subscription) {
			return ""
		}
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		return fmt.Sprintf("%d deletions took effect", len(r.fleet.deletions))
	})
	t.Logf("%d clusters and %d created meanwhile; %d crashes; %s after the last crash", len(uids), len(created), crashes, time.Since(started).Round(time.Millisecond))

	r.nothingLeft(subscription)
	deletions := r.deletions(subscription)
	for _, uid := range append(uids, created...) {
		if deletions[uid] != 1 {
			t.Errorf("%s was deleted by %d operations", uid, deletions[uid])
		}
	}
	if len(deletions) != len(uids)+len(created) {
		t.Errorf("%d clusters were deleted, not %d", len(deletions), len(uids)+len(created))
	}
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	for uid, c := range r.fleet.clusters {
		if c.Status.Phase != clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED || deletions[uid] == 0 {
			t.Errorf("%s is still in the fleet, as %s", c.ResourceId, c.Status.Phase)
		}
		if r.fleet.deletions[uid] != 1 {
			t.Errorf("the deletion of %s took effect %d times", c.ResourceId, r.fleet.deletions[uid])
		}
	}
}

// TestCascadeContinuesPastStuckCluster: a cluster whose deletion fails does not hold up the others, and is deleted once
// that is possible.
func TestCascadeContinuesPastStuckCluster(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	uids := r.seedClusters(subscription, 60)
	r.fleet.mu.Lock()
	for _, uid := range uids[:45] {
		r.fleet.stuck[uid] = true
	}
	r.fleet.mu.Unlock()
	r.setSubscription(subscription, hub.Deleted)
	stop := r.start("backend-0")
	r.eventually("deleting the others", func() string {
		left, _, err := r.db.Clusters().List(t.Context(), subscription, "", "", 100)
		if err != nil || len(left) != 45 {
			return fmt.Sprint(len(left), " left, ", err)
		}
		for _, item := range left {
			if item.Value.ProvisioningState != hub.Failed {
				return item.Key.ResourceID + " is " + string(item.Value.ProvisioningState)
			}
		}
		return ""
	})
	if r.emptied(subscription) {
		t.Error("the subscription is recorded as empty and has clusters")
	}
	stop()
	r.fleet.mu.Lock()
	clear(r.fleet.stuck)
	r.fleet.mu.Unlock()
	r.start("backend-0")
	r.eventually("deleting the stuck cluster", func() string {
		if r.emptied(subscription) {
			return ""
		}
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		return fmt.Sprintf("%d deletions took effect", len(r.fleet.deletions))
	})
	r.nothingLeft(subscription)
}
