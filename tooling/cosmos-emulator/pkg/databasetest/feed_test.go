package databasetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// witness records the last received state of each document.
type witness struct {
	mu    sync.Mutex
	seen  map[string]string
	calls int
}

func newWitness() *witness {
	return &witness{seen: map[string]string{}}
}

func (w *witness) handle(db *database.DB) database.Handler {
	return func(_ context.Context, changes []database.Change) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.calls++
		for _, change := range changes {
			if change.Kind != database.ClusterKind {
				continue
			}
			item, err := database.DecodeChange(db.Clusters(), change)
			if err != nil {
				return err
			}
			state := fmt.Sprint(item.Value.Generation)
			if change.Removed {
				state = "removed"
			}
			w.seen[item.Value.UID] = state
		}
		return nil
	}
}

func (w *witness) await(t *testing.T, uid, state string) {
	t.Helper()
	eventually.Soon(t, uid+" is "+state, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := w.seen[uid]; got != state {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})

}

// start runs a follower until the test ends or stop is called.
func start(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the follower ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestTailSeesWritesAndRemovals(t *testing.T) {
	db, _ := databasetest.New(t)
	w := newWitness()
	start(t, func(ctx context.Context) error {
		return db.Tail(ctx, time.Now().Add(-time.Minute), database.FeedOptions{IdleInterval: 200 * time.Millisecond}, w.handle(db))
	})
	item := create(t, db, "a", "uid-1")
	w.await(t, "uid-1", "1")
	batch := db.NewBatch(subscription)
	item.Value.Generation = 2
	database.Replace(batch, item)
	must.Do(t, batch.Commit(t.Context()))
	w.await(t, "uid-1", "2")
	batch = db.NewBatch(subscription)
	database.Remove(batch, item)
	must.Do(t, batch.Commit(t.Context()))
	w.await(t, "uid-1", "removed")
}

func TestTailRedeliversUntilHandled(t *testing.T) {
	db, _ := databasetest.New(t)
	create(t, db, "a", "uid-1")
	w := newWitness()
	refusals := 3
	start(t, func(ctx context.Context) error {
		return db.Tail(ctx, time.Now().Add(-time.Minute), database.FeedOptions{IdleInterval: 20 * time.Millisecond}, func(ctx context.Context, changes []database.Change) error {
			if refusals > 0 {
				refusals--
				return errors.New("not now")
			}
			return w.handle(db)(ctx, changes)
		})
	})
	w.await(t, "uid-1", "1")
}

// TestFeedSurvivesSplit splits a physical partition while a follower reads it.
func TestFeedSurvivesSplit(t *testing.T) {
	db, server := databasetest.New(t)
	tail := newWitness()
	start(t, func(ctx context.Context) error {
		return db.Tail(ctx, time.Now().Add(-time.Minute), database.FeedOptions{IdleInterval: 20 * time.Millisecond}, tail.handle(db))
	})
	write := func(round string) {
		t.Helper()
		for i := range 8 {
			sub := fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i)
			key := clusterKey(t, "c"+round)
			key.SubscriptionID, key.ResourceID = sub, "/subscriptions/"+sub+key.ResourceID[len("/subscriptions/")+36:]
			batch := db.NewBatch(sub)
			database.Create(batch, db.Clusters(), key, cluster(sub+round))
			must.Do(t, batch.Commit(t.Context()))
		}
		for i := range 8 {
			uid := fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i) + round
			tail.await(t, uid, "1")
		}
	}
	write("before")
	server.SplitPartition(t, "0")
	write("after")
}
