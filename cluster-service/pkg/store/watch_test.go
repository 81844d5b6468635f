package store_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// unlimited makes Next wait until there are changes.
const unlimited = math.MaxInt64

// world is a WatchSource with changes that become visible in order, like those of the store.
type world struct {
	mu        sync.Mutex
	newest    map[string]int64
	revision  int64
	compacted int64
	began     int64
}

func (w *world) RestartRevisions(_ context.Context, seen int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revision >= seen {
		return nil
	}
	w.began = seen + 1000
	w.revision = w.began
	for uid := range w.newest {
		w.revision++
		w.newest[uid] = w.revision
	}
	return nil
}

func (w *world) change(uid string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.revision++
	w.newest[uid] = w.revision
	return w.revision
}

func (w *world) Clock(context.Context) (store.Clock, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return store.Clock{Revision: w.revision, Compacted: w.compacted, RestartedAt: w.began}, nil
}

func (w *world) Changes(_ context.Context, after int64, limit int) ([]store.Change, store.Clock, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byRevision := map[int64]string{}
	for uid, revision := range w.newest {
		byRevision[revision] = uid
	}
	var changes []store.Change
	for revision := after + 1; revision <= w.revision && len(changes) < limit; revision++ {
		if uid, ok := byRevision[revision]; ok {
			changes = append(changes, store.Change{Revision: revision, Cluster: &fleet.Cluster{UID: uid, Revision: revision}})
		}
	}
	return changes, store.Clock{Revision: w.revision, Compacted: w.compacted, RestartedAt: w.began}, nil
}

func startHub(t *testing.T, source store.WatchSource, size int) *store.WatchHub {
	t.Helper()
	hub := store.NewWatchHub(source, size, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { hub.Run(ctx) })
	t.Cleanup(func() { cancel(); group.Wait() })
	return hub
}

// TestWatchersReceiveAllChanges runs watchers that start late, resume within a batch, and are slower than the ring allows.
func TestWatchersReceiveAllChanges(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &world{newest: map[string]int64{}}
	hub := startHub(t, w, 16)
	uids := []string{"a", "b", "c", "d", "e", "f", "g"}
	const last = 3000
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			after, seen := int64(0), map[string]int64{}
			for after < last {
				batch, err := hub.Next(t.Context(), after, unlimited)
				if err != nil {
					t.Error(err)
					return
				}
				if batch.Revision < after {
					t.Errorf("watcher %d received revision %[3]d after %[2]d", i, after, batch.Revision)
				}
				for _, c := range batch.Changes {
					if c.Revision <= after || c.Revision > batch.Revision {
						t.Errorf("watcher %d at %d got revision %d in a batch up to %d", i, after, c.Revision, batch.Revision)
					}
					after = c.Revision
					seen[c.Cluster.UID] = c.Revision
					// Some stop in the middle of a batch and resume there.
					if random.IntN(10) == 0 {
						break
					}
				}
				if len(batch.Changes) == 0 || after == batch.Changes[len(batch.Changes)-1].Revision {
					after = batch.Revision
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for uid, revision := range w.newest {
				if seen[uid] != revision {
					t.Errorf("watcher %d saw %s at %d, which is at %d", i, uid, seen[uid], revision)
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 99))
	for range last {
		hub.Wake(w.change(uids[random.IntN(len(uids))]))
	}
	group.Wait()
}

func TestCompactedRevisionsAreRefused(t *testing.T) {
	w := &world{newest: map[string]int64{}}
	for range 10 {
		w.change("a")
	}
	w.compacted = 5
	hub := startHub(t, w, 16)
	for _, tc := range []struct {
		reason string
		after  int64
		want   error
	}{
		{"a watch from 0 lists all resources", 0, nil},
		{"a deletion may have been missed", 4, store.ErrCompacted},
		{"nothing was removed since", 5, nil},
		{"the newest", 10, nil},
		{"from another database", 11, store.ErrCompacted},
	} {
		if err := hub.Check(t.Context(), tc.after); !errors.Is(err, tc.want) {
			t.Errorf("after %d: %v, want %v: %s", tc.after, err, tc.want, tc.reason)
		}
	}
}

// TestLostRevisionsEndWatches makes the database lose its last changes. Current watchers get ErrCompacted, and a watch from a new
// list misses no change.
func TestLostRevisionsEndWatches(t *testing.T) {
	w := &world{newest: map[string]int64{}}
	hub := startHub(t, w, 16)
	w.change("a")
	before := w.revision
	for range 9 {
		hub.Wake(w.change("b"))
	}
	after := w.revision
	must.Get(hub.Next(t.Context(), after-1, unlimited))(t)
	w.mu.Lock()
	w.revision = before
	delete(w.newest, "b")
	w.mu.Unlock()
	hub.Wake(0)
	if _, err := hub.Next(t.Context(), after, unlimited); !errors.Is(err, store.ErrCompacted) {
		t.Fatalf("a watcher that received the lost revisions: %v", err)
	}
	if err := hub.Check(t.Context(), after); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("a watch from a lost revision: %v", err)
	}
	clock, _ := w.Clock(t.Context())
	changed := w.change("c")
	hub.Wake(changed)
	batch, err := hub.Next(t.Context(), clock.Revision, unlimited)
	if err != nil || changed <= after || len(batch.Changes) != 1 || batch.Changes[0].Cluster.UID != "c" {
		t.Errorf("a watch from a list after it: %+v, %v", batch, err)
	}
}
