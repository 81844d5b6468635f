package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// place creates a cluster if it does not exist and requests a place for it.
func place(ctx context.Context, s *store.Store, uid string) (shard string, err error) {
	err = s.Update(ctx, []string{uid}, func(ctx context.Context, tx *store.Tx) error {
		t := tx.Aggregates[uid]
		if t.Cluster == nil {
			t.Cluster = newCluster(s, uid)
		}
		_, err := tx.Place(ctx, t.Cluster, t.PlacementNeeds(), &rules)
		shard = t.Cluster.Shard
		return err
	})
	return shard, err
}

func change(ctx context.Context, s *store.Store, name string, change func(*store.Shard)) error {
	_, err := s.ChangeShard(ctx, name, func(shard *store.Shard, _ []store.Shard) (*store.Shard, *store.ShardChange, error) {
		change(shard)
		return shard, &store.ShardChange{Time: s.Now(), Actor: store.Actor{Name: "kim", Reason: "test"}, Action: "update"}, nil
	})
	return err
}

// TestCordonedShardGetsNoClusters cordons, uncordons and resizes shards while clusters are created and deleted. After a cordon is
// acknowledged, the shard gets no clusters. No shard exceeds its capacity, and every stored decision follows from its recorded facts.
func TestCordonedShardGetsNoClusters(t *testing.T) {
	const rounds, creators = 15, 4
	s := open(t, store.Options{MaxConnections: 12})
	ctx := t.Context()
	must.Do(t, s.ConfigureShards(ctx, []config.Shard{{Name: "a", Capacity: 30}, {Name: "b", Capacity: 30}}))
	done := make(chan struct{})
	var group sync.WaitGroup
	var mu sync.Mutex
	var uids []string
	for range creators {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				uid := uuid.NewString()
				shard, err := place(ctx, s, uid)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				uids = append(uids, uid)
				mu.Unlock()
				if shard == "" {
					continue
				}
				// The deletion frees the place for the next cluster.
				if err := end(ctx, s, uid); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for round := range rounds {
		name, capacity := string("ab"[round%2]), int32(round%4)
		must.Do(t, change(ctx, s, name, func(shard *store.Shard) { shard.Cordoned, shard.Override.Capacity = true, &capacity }))
		before := onShard(t, s, name)
		for range 5 {
			if after := onShard(t, s, name); after > before {
				t.Errorf("round %d: %d clusters on %s, and %d after it was cordoned", round, before, name, after)
			} else {
				before = after
			}
		}
		must.Do(t, change(ctx, s, name, func(shard *store.Shard) { shard.Cordoned = false }))
	}
	close(done)
	group.Wait()
	for _, uid := range uids {
		e, err := s.Placement(ctx, uid)
		if err != nil || len(e.Decisions) != 1 {
			t.Fatalf("%v, %v; want one decision", e, err)
		}
		for _, v := range e.Decisions[0].Verdicts {
			if (v.Shard == e.Decisions[0].Shard) != (v.Rank == 1) || v.Rank > 0 && v.Clusters >= v.Capacity {
				t.Errorf("decision %+v", e.Decisions[0])
			}
		}
	}
	shards := must.Get(s.Shards(ctx))(t)
	for _, shard := range shards {
		if shard.Clusters != 0 || shard.Version == 0 {
			t.Errorf("at the end %s has %d clusters at version %d", shard.Name, shard.Clusters, shard.Version)
		}
	}
}

func onShard(t *testing.T, s *store.Store, name string) int32 {
	t.Helper()
	shards := must.Get(s.Shards(t.Context()))(t)
	for _, shard := range shards {
		if shard.Name == name {
			return shard.Clusters
		}
	}
	return 0
}

// TestDecisionsAreBounded decides repeatedly on a cluster. Equal decisions are counted, a limited number of different decisions is
// stored, and the purge of the cluster deletes them.
func TestDecisionsAreBounded(t *testing.T) {
	s := open(t, store.Options{})
	ctx, uid := t.Context(), uuid.NewString()
	must.Do(t, s.ConfigureShards(ctx, []config.Shard{{Name: "a", Capacity: 0}}))
	for range 3 {
		if shard, err := place(ctx, s, uid); err != nil || shard != "" {
			t.Fatalf("%q, %v", shard, err)
		}
	}
	e, err := s.Placement(ctx, uid)
	if err != nil || len(e.Decisions) != 1 || e.Decisions[0].Count != 3 || e.Decisions[0].Last.Before(e.Decisions[0].First) {
		t.Fatalf("%+v, %v; want one decision, three times", e, err)
	}
	for i := range 30 {
		must.Do(t, s.ConfigureShards(ctx, []config.Shard{{Name: fmt.Sprintf("s%d", i), Capacity: 0}}))
		must.Get(place(ctx, s, uid))(t)
	}
	if e, err = s.Placement(ctx, uid); err != nil || len(e.Decisions) != 20 || len(e.Decisions[0].Verdicts) != 31 || len(e.Decisions[19].Verdicts) != 12 {
		t.Errorf("%d decisions, %v; want the newest 20", len(e.Decisions), err)
	}
	// The cluster's own rules are deleted with it.
	must.Do(t, s.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		tx.SetPolicyOverride(uid, &store.PolicyOverride{Policy: placement.Policy{Shard: "s3"}, Actor: store.Actor{Name: "kim"}, Time: s.Now()})
		return nil
	}))
	if e, err = s.Placement(ctx, uid); err != nil || e.Override == nil || e.Decide(s.Now(), &rules).Policy.Shard != "s3" {
		t.Errorf("%+v, %v; want its own rules", e, err)
	}
	must.Do(t, end(ctx, s, uid))
	must.Do(t, s.Purge(ctx, s.Now().Add(time.Second)))
	if e, err := s.Placement(ctx, uid); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("%+v, %v; want ErrUnknown", e, err)
	}
}

// TestHistoryIsBounded changes a shard more often than the number of stored changes.
func TestHistoryIsBounded(t *testing.T) {
	s := open(t, store.Options{})
	ctx := t.Context()
	must.Do(t, s.ConfigureShards(ctx, []config.Shard{{Name: "a", Capacity: 1}}))
	for i := range 105 {
		must.Do(t, change(ctx, s, "a", func(shard *store.Shard) { shard.Cordoned = i%2 == 0 }))
	}
	changes, err := s.ShardChanges(ctx, "a")
	if err != nil || len(changes) != 100 || changes[0].Version != 105 || changes[99].Version != 6 {
		t.Errorf("%d changes, %v; want the newest 100", len(changes), err)
	}
}

// TestUnresponsiveAgentIsDetected checks when the agent of a shard counts as unresponsive and as responsive again.
func TestUnresponsiveAgentIsDetected(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond)
	s := open(t, store.Options{Now: func() time.Time { return now }})
	ctx, uid := t.Context(), uuid.NewString()
	must.Do(t, s.ConfigureShards(ctx, []config.Shard{{Name: "a", Capacity: 9}}))
	must.Get(place(ctx, s, uid))(t)
	work := func(change func(*fleet.Work)) {
		t.Helper()
		must.Do(t, update(ctx, s, uid, func(a *fleet.ClusterAggregate) {
			if len(a.Works) == 0 {
				a.Works = append(a.Works, &fleet.Work{ID: uuid.NewString(), ClusterUID: uid, Kind: fleet.HostedCluster, Name: "w", Shard: "a", Desired: 1})
			}
			change(a.Works[0])
		}))
	}
	steps := []struct {
		reason    string
		do        func()
		heard     bool
		silent    bool
		answering int
	}{
		{"no report is awaited", func() {}, false, false, 0},
		{"a work was published just now", func() { work(func(w *fleet.Work) { w.Published, w.Version = 1, 3 }) }, false, false, 0},
		{"the agent has not reported on it", func() {}, false, true, 0},
		{"any report shows that the agent responds", func() {}, true, false, 1},
		{"no further report arrives", func() {}, false, true, 0},
		{"the report is for an older version", func() { work(func(w *fleet.Work) { w.Sequence = "2 1 agent" }) }, false, true, 0},
		{"the report is for the published version", func() { work(func(w *fleet.Work) { w.Sequence = "3 1 agent" }) }, true, false, 1},
		{"a pending deletion does not count", func() { work(func(w *fleet.Work) { w.DeleteTime, w.DeletePublished, w.Version = now, true, 4 }) }, false, false, 0},
		{"regardless of its age", func() {}, false, false, 0},
	}
	answering := 0
	s.Subscribe(func(_ context.Context, e store.Event) {
		if e.PlacementChanged {
			answering++
		}
	})
	for i, step := range steps {
		now = now.Add(time.Hour)
		step.do()
		heard := map[string]time.Time{}
		if step.heard {
			heard["a"] = now
		}
		answering = 0
		// An agent that sends heartbeats and leaves works unanswered is silent all the same.
		_, err := s.RecordAgentReports(ctx, heard, map[string]time.Time{"a": now})
		if err != nil || answering != step.answering {
			t.Errorf("step %d: %d events that shards can get clusters again, %v, want %d: %s", i, answering, err, step.answering, step.reason)
		}
		shards, err := s.Shards(ctx)
		if err == nil && !shards[0].LastHeartbeat.Equal(now) {
			t.Errorf("step %d: last heartbeat %s, want %s", i, shards[0].LastHeartbeat, now)
		}
		if err != nil || shards[0].Unresponsive(now, placement.DefaultSilentAfter) != step.silent {
			t.Errorf("step %d: %+v, %v; want it silent: %t: %s", i, shards[0], err, step.silent, step.reason)
		}
	}
}
