package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestEventFollowsCommit checks that subscribers see committed data only, and that a transaction that was rolled back directly before its
// commit, or by its change, has no event, uses no revision and stores nothing. The pool has one connection: a handler that reads proves that the transaction's connection was returned.
func TestEventFollowsCommit(t *testing.T) {
	failBeforeCommit, died := false, errors.New("the process died")
	s := open(t, store.Options{MaxConnections: 1, Fault: func(point string) error {
		if failBeforeCommit && point == "before-commit" {
			return died
		}
		return nil
	}})
	ctx, uid := t.Context(), uuid.NewString()
	must.Do(t, s.ConfigureShards(ctx, []config.Shard{{Name: "a", Capacity: 1}}))
	began := must.Get(s.Clock(ctx))(t)
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
		c := newCluster(s, uid)
		tx.Aggregates[uid].Cluster = c
		tx.Aggregates[uid].Works = []*fleet.Work{{ID: uuid.NewString(), ClusterUID: uid, Kind: fleet.HostedCluster, Name: "w", Shard: "a", Desired: 1}}
		_, err := tx.Place(ctx, c, placement.Needs{}, &rules)
		return err
	}

	failBeforeCommit = true
	if err := s.Update(ctx, []string{uid}, create); !errors.Is(err, died) {
		t.Fatalf("got %v, want the error of the fault", err)
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
	if _, err := s.Cluster(ctx, uid); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("the cluster exists: %v", err)
	}
	if shards, err := s.Shards(ctx); err != nil || shards[0].Clusters != 0 {
		t.Errorf("shards %v, %v; want the place free", shards, err)
	}
	if clock, err := s.Clock(ctx); err != nil || clock != began {
		t.Errorf("clock %v, %v; want no revision used", clock, err)
	}

	must.Do(t, s.Update(ctx, []string{uid}, create))
	if len(events) != 1 || !slices.Equal(events[0].WorksDue, []string{uid}) || events[0].PlacementChanged || events[0].Revision != stored.Revision {
		t.Fatalf("events of the creation: %+v, want one with the work and the revision %d", events, stored.Revision)
	}
	must.Do(t, update(ctx, s, uid, func(a *fleet.ClusterAggregate) {
		a.Works = nil
		a.Cluster.DeleteTime, a.Cluster.GoneTime = s.Now(), s.Now()
	}))
	if len(events) != 2 || len(events[1].WorksDue) > 0 || !events[1].PlacementChanged {
		t.Fatalf("events of the deletion: %+v, want one that a place became free", events[1:])
	}
}
