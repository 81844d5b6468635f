package app_test

import (
	"context"
	"fmt"
	"net/url"
	"path"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestWhatEndedGoes has Maestro hold the bundles of what is deleted again, as when its database is restored to before the
// deletion: they are deleted again, and those of what is wanted are left.
func TestWhatEndedGoes(t *testing.T) {
	r := newRegion(t)
	r.play()
	service := r.start(nil)
	gone, kept := applyRequest("gone", 1), applyRequest("kept", 1)
	goneWith, goneFrom := poolRequest(gone, "np1", 1), poolRequest(kept, "np1", 1)
	for _, c := range []*csv1.ApplyClusterRequest{gone, kept} {
		if _, err := service.ApplyCluster(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []*csv1.ApplyNodePoolRequest{goneWith, goneFrom} {
		if _, err := service.ApplyNodePool(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		service.awaitPool(t, p.Uid, func(p *csv1.NodePool) bool {
			return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY
		})
	}
	before := r.maestro.Resources()
	if _, err := service.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: gone.Uid}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: goneFrom.Uid, ClusterUid: kept.Uid}); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, gone.Uid, clusterDeleted)
	service.awaitPool(t, goneFrom.Uid, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED
	})
	after := r.maestro.Resources()
	for id := range after {
		delete(before, id)
	}
	if len(before) != 4 {
		t.Fatalf("%d bundles went, want the cluster's two and both node pools'", len(before))
	}

	r.maestro.Restore(before)
	untilDone(t, func(context.Context) error {
		held := r.maestro.Resources()
		for id := range before {
			if r, there := held[id]; there {
				return fmt.Errorf("Maestro still holds %s", r.Name)
			}
		}
		return nil
	})
	if held := r.maestro.Resources(); len(held) != len(after) {
		t.Errorf("Maestro holds %d bundles, want the %d of what is wanted", len(held), len(after))
	}
}

// TestARestoredDatabaseDestroysNothing is named after what went wrong: a database that was restored to before a cluster was
// made knows nothing of it, and the search for orphans deleted the cluster, with all that its customer had in it.
func TestARestoredDatabaseDestroysNothing(t *testing.T) {
	r := newRegion(t)
	r.play()
	first := r.start(nil)
	old, newer := applyRequest("old", 1), applyRequest("newer", 1)
	if _, err := first.ApplyCluster(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	first.awaitCluster(t, old.Uid, clusterReady(1))
	first.stop()
	backup := r.url
	parsed, err := url.Parse(backup)
	if err != nil {
		t.Fatal(err)
	}
	r.url = databases.DatabaseFrom(t, path.Base(parsed.Path))
	first = r.start(nil)
	pool := poolRequest(old, "np1", 1)
	if _, err := first.ApplyNodePool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := first.ApplyCluster(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	ready := func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY
	}
	first.awaitPool(t, pool.Uid, ready)
	first.awaitCluster(t, newer.Uid, clusterReady(1))
	first.stop()
	held := r.maestro.Resources()

	r.url = backup
	restored := r.start(nil)
	unknown := func(want float64) {
		t.Helper()
		untilDone(t, func(context.Context) error {
			if n := r.metric("cluster_service_unknown_works", ""); n != want {
				return fmt.Errorf("%v works are said to be unknown, want %v", n, want)
			}
			return nil
		})
	}
	unknown(3) // the node pool's, and the two of the newer cluster
	for id, before := range held {
		if now, there := r.maestro.Resources()[id]; !there || now.Deleting {
			t.Errorf("%s is deleted", before.Name)
		}
	}
	// What is asked for again is what is there.
	if _, err := restored.ApplyNodePool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := restored.ApplyCluster(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	restored.awaitPool(t, pool.Uid, ready)
	restored.awaitCluster(t, newer.Uid, clusterReady(1))
	unknown(0)
	if now := r.maestro.Resources(); len(now) != len(held) {
		t.Errorf("Maestro holds %d bundles, want the same %d", len(now), len(held))
	}
}
