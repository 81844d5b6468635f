package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// TestEventFollowsCommit checks that subscribers see committed data only, and no event of a transaction that was rolled
// back. The pool has one connection: a handler that reads proves that the transaction's connection was returned.
func TestEventFollowsCommit(t *testing.T) {
	failBeforeCommit := false
	s := open(t, store.Options{MaxConnections: 1, Fault: func(point string) error {
		if failBeforeCommit && point == "before-commit" {
			return errors.New("the process died")
		}
		return nil
	}})
	ctx, uid := t.Context(), uuid.NewString()
	if err := s.ConfigureShards(ctx, []config.Shard{{Name: "a", Capacity: 1}}); err != nil {
		t.Fatal(err)
	}
	var events []store.Event
	var stored *fleet.Cluster
	s.Subscribe(func(ctx context.Context, e store.Event) {
		var err error
		if stored, err = s.Cluster(ctx, uid); err != nil {
			t.Errorf("the cluster of the event is not stored: %v", err)
		}
		events = append(events, e)
	})
	create := func(ctx context.Context, tx *store.Tx) error {
		c := &fleet.Cluster{UID: uid, ResourceID: uid, Spec: &csv1.ClusterSpec{}, Status: &csv1.ClusterStatus{}, CreateTime: s.Now()}
		tx.Aggregates[uid].Cluster = c
		tx.Aggregates[uid].Works = []*fleet.Work{{ID: uuid.NewString(), ClusterUID: uid, Kind: fleet.HostedCluster, Name: "w", Shard: "a", Desired: 1}}
		_, err := tx.Place(ctx, c, placement.Needs{}, &rules)
		return err
	}

	failBeforeCommit = true
	if err := s.Update(ctx, []string{uid}, create); err == nil {
		t.Fatal("the update succeeded, want the error of the fault")
	}
	failBeforeCommit = false
	refused := errors.New("refused")
	if err := s.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) error {
		return errors.Join(create(ctx, tx), refused)
	}); !errors.Is(err, refused) {
		t.Fatalf("got %v, want the error of the change", err)
	}
	if len(events) > 0 {
		t.Fatalf("transactions that were rolled back have the events %+v", events)
	}

	if err := s.Update(ctx, []string{uid}, create); err != nil {
		t.Fatal(err)
	}
	if len(events) != 1 || !slices.Equal(events[0].WorksDue, []string{uid}) || events[0].PlacementChanged || events[0].Revision != stored.Revision {
		t.Fatalf("events of the creation: %+v, want one with the work and the revision %d", events, stored.Revision)
	}
	if err := s.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		tx.Aggregates[uid].Works = nil
		tx.Aggregates[uid].Cluster.DeleteTime, tx.Aggregates[uid].Cluster.GoneTime = s.Now(), s.Now()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(events) != 2 || len(events[1].WorksDue) > 0 || !events[1].PlacementChanged {
		t.Fatalf("events of the deletion: %+v, want one that a place became free", events[1:])
	}
}
