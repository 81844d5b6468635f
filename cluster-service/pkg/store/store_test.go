package store_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
)

var databases *postgrestest.Server

var rules = placement.DefaultRules()

func TestMain(m *testing.M) { os.Exit(leaktest.Check(postgrestest.Main(m, &databases))) }

func open(t testing.TB, options store.Options) *store.Store {
	t.Helper()
	if options.URL == "" {
		options.URL = databases.Migrated(t, store.Migrations())
	}
	// The suite runs with the rights that the service has in a region.
	options.URL = postgrestest.RuntimeURL(t, options.URL)
	s := must.Get(store.Open(options))(t)
	t.Cleanup(s.Close)
	must.Do(t, s.CheckMigrated(t.Context()))
	return s
}

// openAsOwner returns a store with the rights of the owner, for tests that need them to refresh the statistics of tables.
func openAsOwner(t testing.TB) *store.Store {
	t.Helper()
	s := must.Get(store.Open(store.Options{URL: databases.Migrated(t, store.Migrations())}))(t)
	t.Cleanup(s.Close)
	return s
}

// newCluster returns a cluster that was created now.
func newCluster(s *store.Store, uid string) *fleet.Cluster {
	return &fleet.Cluster{UID: uid, ResourceID: "/x/" + uid, Spec: &csv1.ClusterSpec{}, Status: &csv1.ClusterStatus{}, CreateTime: s.Now()}
}

// update changes an aggregate. It creates its cluster if there is none.
func update(ctx context.Context, s *store.Store, uid string, change func(a *fleet.ClusterAggregate)) error {
	return s.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		a := tx.Aggregates[uid]
		if a.Cluster == nil {
			a.Cluster = newCluster(s, uid)
		}
		change(a)
		return nil
	})
}

// end completes the deletion of a cluster.
func end(ctx context.Context, s *store.Store, uid string) error {
	return update(ctx, s, uid, func(a *fleet.ClusterAggregate) { a.Cluster.DeleteTime, a.Cluster.GoneTime = s.Now(), s.Now() })
}

// put creates a cluster, or increments the generation of an existing one, and returns its revision.
func put(ctx context.Context, s *store.Store, uid string) (int64, error) {
	var c *fleet.Cluster
	err := update(ctx, s, uid, func(a *fleet.ClusterAggregate) {
		c = a.Cluster
		c.Generation++
	})
	if err != nil {
		return 0, err
	}
	return c.Revision, nil
}

// TestRevisionsAreSeenInOrder runs writers, and readers that resume from the last revision that they read. Readers see every commit,
// or a newer state of the same resource.
func TestRevisionsAreSeenInOrder(t *testing.T) {
	const writers, writes, resources, readers = 8, 40, 5, 3
	s := open(t, store.Options{MaxConnections: 12})
	ctx := t.Context()
	var uids []string
	for range resources {
		uids = append(uids, uuid.NewString())
	}
	var mu sync.Mutex
	committed := map[int64]string{}
	done := make(chan struct{})
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				uid := uids[(w+i)%resources]
				revision, err := put(ctx, s, uid)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, taken := committed[revision]; taken {
					t.Errorf("revision %d was given to %s and %s", revision, other, uid)
				}
				committed[revision] = uid
				mu.Unlock()
			}
		})
	}
	seen := make([][]store.Change, readers)
	for r := range readers {
		reading.Go(func() {
			after := int64(0)
			for last := false; ; {
				select {
				case <-done:
					last = true
				default:
				}
				changes, clock, err := s.Changes(ctx, after, 1+2*r)
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range changes {
					if c.Revision <= after {
						t.Errorf("revision %d came after %d", c.Revision, after)
					}
					after = c.Revision
				}
				if len(changes) < 1+2*r {
					after = max(after, clock.Revision)
				}
				seen[r] = append(seen[r], changes...)
				if last && len(changes) == 0 {
					return
				}
			}
		})
	}
	writing.Wait()
	close(done)
	reading.Wait()
	if len(committed) != writers*writes {
		t.Errorf("%d revisions for %d commits", len(committed), writers*writes)
	}
	for r, changes := range seen {
		newest := map[string]int64{}
		for _, c := range changes {
			newest[c.Cluster.UID] = c.Revision
		}
		for revision, uid := range committed {
			if newest[uid] < revision {
				t.Errorf("reader %d missed revision %d of %s: its newest is %d", r, revision, uid, newest[uid])
			}
		}
	}
}

// TestReadReturnsConsistentState reads an aggregate while its parts change together. With a read that mixes two states, a publisher
// would publish the old content as the new version, and the new content would never be published.
func TestReadReturnsConsistentState(t *testing.T) {
	const readers, changes = 3, 200
	s := open(t, store.Options{MaxConnections: readers + 1})
	uid, pool := uuid.NewString(), uuid.NewString()
	change := func(generation int64) error {
		return update(t.Context(), s, uid, func(aggregate *fleet.ClusterAggregate) {
			if len(aggregate.Pools) == 0 {
				aggregate.Pools = []*fleet.NodePool{{UID: pool, ClusterUID: uid, ResourceID: "/x/" + uid + "/y", Spec: &csv1.NodePoolSpec{}, Status: &csv1.NodePoolStatus{}, CreateTime: s.Now()}}
				aggregate.Works = []*fleet.Work{{ID: uuid.NewString(), ClusterUID: uid, OwnerUID: pool, Kind: fleet.NodePoolWork, Name: "w", Shard: "mgmt-1"}}
			}
			aggregate.Cluster.Generation = generation
			aggregate.Pools[0].Generation = generation
			aggregate.Works[0].Generation = generation
		})
	}
	must.Do(t, change(1))
	done := make(chan struct{})
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				read, err := s.Read(t.Context(), uid)
				if err != nil {
					t.Error(err)
					return
				}
				if c, p, w := read.Cluster.Generation, read.Pools[0].Generation, read.Works[0].Generation; c != p || p != w {
					t.Errorf("a read returned the cluster at %d, the pool at %d, the work at %d", c, p, w)
					return
				}
			}
		})
	}
	for generation := int64(2); generation <= changes; generation++ {
		if err := change(generation); err != nil {
			t.Error(err)
			break
		}
	}
	close(done)
	reading.Wait()
}

// TestPlacesAreNeverSharedAndSpread creates more clusters at once than there are places.
func TestPlacesAreNeverSharedAndSpread(t *testing.T) {
	s := open(t, store.Options{MaxConnections: 12})
	ctx := t.Context()
	must.Do(t, s.ConfigureShards(ctx, []config.Shard{{Name: "a", Capacity: 10}, {Name: "b", Capacity: 20}, {Name: "c", Capacity: 50}}))
	must.Do(t, change(ctx, s, "c", func(shard *store.Shard) { shard.Cordoned = true }))
	placed := make(chan string, 100)
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			uid := uuid.NewString()
			shard, err := place(ctx, s, uid)
			if err != nil {
				t.Error(err)
			}
			placed <- shard
		})
	}
	group.Wait()
	close(placed)
	count := map[string]int{}
	for shard := range placed {
		count[shard]++
	}
	if count["a"] != 10 || count["b"] != 20 || count["c"] != 0 || count[""] != 10 {
		t.Errorf("places used: %v, want a full, b full, c cordoned, 10 without", count)
	}
	shards := must.Get(s.Shards(ctx))(t)
	for _, shard := range shards {
		if int(shard.Clusters) != count[shard.Name] {
			t.Errorf("shard %s counts %d clusters and has %d", shard.Name, shard.Clusters, count[shard.Name])
		}
	}
}

// TestDueWorksAreLeased checks that a due work is acquired once per lease.
func TestDueWorksAreLeased(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	s := open(t, store.Options{Now: clock, Lease: 10 * time.Second})
	ctx, uid := t.Context(), uuid.NewString()
	var due []string
	s.Subscribe(func(_ context.Context, e store.Event) { due = append(due, e.WorksDue...) })
	err := update(ctx, s, uid, func(a *fleet.ClusterAggregate) {
		a.Works = append(a.Works, &fleet.Work{ID: uuid.NewString(), ClusterUID: uid, Kind: fleet.HostedCluster, Name: "w", Shard: "a", Desired: 1})
	})
	if err != nil || len(due) != 1 {
		t.Fatalf("due %v, %v; want the cluster", due, err)
	}
	for step, want := range []struct {
		pass  time.Duration
		taken int
	}{{0, 0}, {9 * time.Second, 0}, {2 * time.Second, 1}, {0, 0}, {11 * time.Second, 1}} {
		now = now.Add(want.pass)
		taken, err := s.AcquireDueWorks(ctx, 10)
		if err != nil || len(taken) != want.taken {
			t.Errorf("step %d: acquired %v, %v; want %d", step, taken, err, want.taken)
		}
	}
}

// TestPurgeAdvancesCompaction checks that a purge raises the compacted revision, so that no watcher misses a deletion.
func TestPurgeAdvancesCompaction(t *testing.T) {
	s := open(t, store.Options{})
	ctx := t.Context()
	kept, gone := uuid.NewString(), uuid.NewString()
	began := must.Get(s.Clock(ctx))(t)
	for _, uid := range []string{kept, gone} {
		must.Get(put(ctx, s, uid))(t)
	}
	must.Do(t, end(ctx, s, gone))
	must.Do(t, s.Purge(ctx, s.Now().Add(time.Second)))
	changes, clock, err := s.Changes(ctx, 0, 10)
	if err != nil || len(changes) != 1 || changes[0].Cluster.UID != kept || clock.Compacted != began.Revision+3 {
		t.Errorf("changes %v, clock %v, %v; want the kept cluster and compaction up to %d", changes, clock, err, began.Revision+3)
	}
}

// TestErrorsOmitPassword checks that errors do not contain the password of the URL.
func TestErrorsOmitPassword(t *testing.T) {
	_, err := store.Open(store.Options{URL: "postgres://user:hunter2@[::bad"})
	if err == nil || strings.Contains(fmt.Sprint(err), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// TestAggregateIsPlannedOnce checks that PostgreSQL plans the statement that reads an aggregate for its first executions only.
func TestAggregateIsPlannedOnce(t *testing.T) {
	s, ctx, uid := open(t, store.Options{MaxConnections: 1}), t.Context(), uuid.NewString()
	must.Get(put(ctx, s, uid))(t)
	for range 20 {
		must.Get(s.Read(ctx, uid))(t)
	}
	if count, err := s.AggregatePlans(ctx); err != nil || count > 5 {
		t.Errorf("planned %d times in 21 executions, %v; want 5", count, err)
	}
}

// TestAcceptedStateIsStored: an update, its refusal and its end are stored, and a generation that a replica of an earlier release stores is not
// refused.
func TestAcceptedStateIsStored(t *testing.T) {
	s, ctx, uid := open(t, store.Options{}), t.Context(), uuid.NewString()
	named := func(name string) *csv1.ClusterSpec { return &csv1.ClusterSpec{Name: name} }
	update := func(change func(a *fleet.ClusterAggregate)) *fleet.ClusterAggregate {
		t.Helper()
		must.Do(t, update(ctx, s, uid, change))
		return must.Get(s.Read(ctx, uid))(t)
	}
	release := fleet.Release{Version: "4.21.4", Image: "image"}
	pool, auth := uuid.NewString(), uuid.NewString()
	update(func(a *fleet.ClusterAggregate) {
		a.Cluster = &fleet.Cluster{UID: uid, ResourceID: uid, Generation: 1, Spec: named("before"), Status: &csv1.ClusterStatus{ObservedGeneration: 1}, Release: release, CreateTime: s.Now()}
		a.Pools = []*fleet.NodePool{{UID: pool, ClusterUID: uid, ResourceID: pool, Generation: 1, Spec: &csv1.NodePoolSpec{Name: "before"}, Status: &csv1.NodePoolStatus{ObservedGeneration: 1}, Release: release, CreateTime: s.Now()}}
		a.ExternalAuths = []*fleet.ExternalAuth{{UID: auth, ClusterUID: uid, ResourceID: auth, Status: &csv1.ExternalAuthStatus{}, CreateTime: s.Now()}}
		a.ExternalAuths[0].BeginUpdate(a)
		a.ExternalAuths[0].Generation, a.ExternalAuths[0].Spec = 1, &csv1.ExternalAuthSpec{Name: "after"}
	})
	pending := update(func(a *fleet.ClusterAggregate) {
		a.Cluster.BeginUpdate(a)
		a.Cluster.Generation, a.Cluster.Spec = 2, named("after")
		a.Pools[0].BeginUpdate(a)
		a.Pools[0].Generation, a.Pools[0].Spec = 2, &csv1.NodePoolSpec{Name: "after"}
	})
	if c, p, e := pending.Cluster, pending.Pools[0], pending.ExternalAuths[0]; c.Spec.GetName() != "after" || !proto.Equal(c.Accepted.Spec, named("before")) || c.Accepted.Release != release || c.Accepted.Generation != 1 || c.Refused != nil ||
		p.Spec.GetName() != "after" || !proto.Equal(p.Accepted.Spec, &csv1.NodePoolSpec{Name: "before"}) || p.Accepted.Release != release || p.Refused != nil ||
		e.Accepted == nil || e.Accepted.Spec != nil || e.Refused != nil {
		t.Errorf("pending updates: %v, %v, %v", c.Update, p.Update, e.Update)
	}
	refused := update(func(a *fleet.ClusterAggregate) {
		a.Cluster.Spec, a.Cluster.Refused = named("before"), a.Cluster.Spec
		a.Pools[0].Spec, a.Pools[0].Refused = &csv1.NodePoolSpec{Name: "before"}, a.Pools[0].Spec
		a.ExternalAuths[0].Refused = a.ExternalAuths[0].Spec
	})
	if c, p, e := refused.Cluster, refused.Pools[0], refused.ExternalAuths[0]; c.Spec.GetName() != "before" || c.RequestedSpec().GetName() != "after" || c.Refused == nil ||
		p.Spec.GetName() != "before" || p.RequestedSpec().GetName() != "after" || e.Spec.GetName() != "after" || e.Refused == nil || refused.RenderedExternalAuth() != nil {
		t.Errorf("refused updates: %v, %v, %v", c, p, e)
	}
	if again := update(func(*fleet.ClusterAggregate) {}); again.Cluster.Revision != refused.Cluster.Revision {
		t.Error("reading and writing a refused update changes it")
	}
	ended := update(func(a *fleet.ClusterAggregate) {
		a.Cluster.Update, a.Pools[0].Update, a.ExternalAuths[0].Update = fleet.Update{}, fleet.Update{}, fleet.Update{}
	})
	if ended.Cluster.Update != (fleet.Update{}) || ended.Pools[0].Update != (fleet.Update{}) || ended.ExternalAuths[0].Update != (fleet.Update{}) {
		t.Errorf("ended updates: %v", ended)
	}
}
