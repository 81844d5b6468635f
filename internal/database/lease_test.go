package database

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memoryLeases is a lease store that tests can disconnect from a replica.
type memoryLeases struct {
	mu        sync.Mutex
	documents map[string]leaseDocument
	writes    int
}

// storeConnection is one replica's connection to the store.
type storeConnection struct {
	*memoryLeases
	mu  sync.Mutex
	cut bool
	// slow is the duration of each read and write. lost is how many of the next writes are executed and answered with a
	// conflict, as for a client that repeats a write whose response it lost.
	slow time.Duration
	lost int
}

func (r *storeConnection) setCut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

func (r *storeConnection) setSlow(slow time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = slow
}

func (r *storeConnection) loseAnswers(lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = lost
}

// wait waits for the duration of a request. It returns an error if the replica is disconnected.
func (r *storeConnection) wait(ctx context.Context) error {
	r.mu.Lock()
	cut, slow := r.cut, r.slow
	r.mu.Unlock()
	if cut {
		return errors.New("the store cannot be reached")
	}
	if slow == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(slow):
		return nil
	}
}

func (r *storeConnection) answerIsLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost--
	return r.lost >= 0
}

func (r *storeConnection) list(ctx context.Context, group string) ([]leaseDocument, error) {
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	r.memoryLeases.mu.Lock()
	defer r.memoryLeases.mu.Unlock()
	var documents []leaseDocument
	for _, d := range r.documents {
		if d.Group == group {
			documents = append(documents, d)
		}
	}
	return documents, nil
}

func (r *storeConnection) write(ctx context.Context, d leaseDocument) (string, error) {
	if err := r.wait(ctx); err != nil {
		return "", err
	}
	r.memoryLeases.mu.Lock()
	defer r.memoryLeases.mu.Unlock()
	if r.documents[d.ID].ETag != d.ETag {
		return "", errLeaseConflict
	}
	r.writes++
	d.ETag = fmt.Sprint(r.writes)
	r.documents[d.ID] = d
	if r.answerIsLost() {
		return "", errLeaseConflict
	}
	return d.ETag, nil
}

// replicas runs holders of a group of leases, 8 if nothing else is set, and records which replica works on which lease.
type replicas struct {
	store *memoryLeases
	names []string
	wg    sync.WaitGroup

	mu      sync.Mutex
	working map[string][]string
	doubled bool
}

func newReplicas() *replicas {
	return &replicas{store: &memoryLeases{documents: map[string]leaseDocument{}}, working: map[string][]string{}, names: eight}
}

var eight = []string{"a", "b", "c", "d", "e", "f", "g", "h"}

// start runs a replica. Its label distinguishes two processes with one name.
func (r *replicas) start(owner, label string, position func(lease *Lease)) (way *storeConnection, stop func()) {
	way = &storeConnection{memoryLeases: r.store}
	ctx, cancel := context.WithCancel(context.Background())
	r.wg.Go(func() {
		_ = runLeases(ctx, way, LeaseOptions{Group: "test", Owner: owner, Names: r.names}, func(ctx context.Context, lease *Lease) {
			r.mu.Lock()
			r.working[lease.Name] = append(r.working[lease.Name], label)
			r.doubled = r.doubled || len(r.working[lease.Name]) > 1
			r.mu.Unlock()
			if position != nil {
				position(lease)
			}
			<-ctx.Done()
			r.mu.Lock()
			r.working[lease.Name] = slices.DeleteFunc(r.working[lease.Name], func(l string) bool { return l == label })
			r.mu.Unlock()
		})
	})
	return way, cancel
}

// count returns how many leases each replica works on.
func (r *replicas) count() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, labels := range r.working {
		for _, label := range labels {
			count[label]++
		}
	}
	return count
}

func (r *replicas) want(t *testing.T, when string, want map[string]int) {
	t.Helper()
	synctest.Wait()
	got := r.count()
	for label, n := range want {
		if got[label] != n {
			t.Errorf("%s: %s works on %d leases, want %d", when, label, got[label], n)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doubled {
		t.Errorf("%s: two replicas have worked on one lease at the same time", when)
	}
}

func TestLeasesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		_, stopA := r.start("a", "a", nil)
		r.want(t, "alone, at once", map[string]int{"a": 8})
		_, stopB := r.start("b", "b", nil)
		time.Sleep(7 * time.Second)
		r.want(t, "two", map[string]int{"a": 4, "b": 4})
		_, stopC := r.start("c", "c", nil)
		time.Sleep(10 * time.Second)
		if got := r.count(); got["a"]+got["b"]+got["c"] != 8 || got["c"] < 2 {
			t.Errorf("three: %v", got)
		}
		stopC()
		time.Sleep(10 * time.Second)
		stopA()
		time.Sleep(10 * time.Second)
		r.want(t, "one is left", map[string]int{"a": 0, "b": 8, "c": 0})
		stopB()
		r.wg.Wait()
	})
}

func TestLeasesOfDeadReplicaAreAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		wayA, stopA := r.start("a", "a", nil)
		_, stopB := r.start("b", "b", nil)
		time.Sleep(7 * time.Second)
		r.want(t, "two", map[string]int{"a": 4, "b": 4})
		wayA.setCut(true)
		// It stops before the other begins: want checks that no lease has two workers.
		time.Sleep(12 * time.Second)
		r.want(t, "one is cut off", map[string]int{"a": 0, "b": 8})
		wayA.setCut(false)
		time.Sleep(10 * time.Second)
		r.want(t, "it is back", map[string]int{"a": 4, "b": 4})
		stopA()
		stopB()
		r.wg.Wait()
	})
}

func TestLeasesSurviveSlowStoreAndLostResponses(t *testing.T) {
	for name, disturb := range map[string]func(*storeConnection){
		"each request takes a third of the duration": func(r *storeConnection) { r.setSlow(2 * time.Second) },
		"the response to a heartbeat is lost":        func(r *storeConnection) { r.loseAnswers(1) },
		"two responses in a row are lost":            func(r *storeConnection) { r.loseAnswers(2) },
		"the store is away for half of the duration": func(r *storeConnection) {
			r.setCut(true)
			go func() { time.Sleep(3 * time.Second); r.setCut(false) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas()
				starts := 0
				way, stop := r.start("a", "a", func(*Lease) { r.mu.Lock(); starts++; r.mu.Unlock() })
				time.Sleep(5 * time.Second)
				r.want(t, "undisturbed", map[string]int{"a": 8})
				disturb(way)
				time.Sleep(time.Minute)
				r.want(t, "disturbed", map[string]int{"a": 8})
				if r.mu.Lock(); starts != 8 {
					t.Errorf("work was started %d times, want 8: leases were dropped without another owner", starts)
				}
				r.mu.Unlock()
				stop()
				r.wg.Wait()
			})
		})
	}
}

// TestLeasesAreSharedThroughSlowStore: a replica cannot release all leases within one heartbeat. Those that it has not released must
// neither stay without a replica nor with it.
func TestLeasesAreSharedThroughSlowStore(t *testing.T) {
	for _, slow := range []time.Duration{600 * time.Millisecond, 800 * time.Millisecond, 1100 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas()
				names := make([]string, 3*writers)
				for i := range names {
					names[i] = fmt.Sprint(i)
				}
				r.names = names
				wayA, stopA := r.start("a", "a", nil)
				time.Sleep(5 * time.Second)
				wayA.setSlow(slow)
				wayB, stopB := r.start("b", "b", nil)
				wayB.setSlow(slow)
				time.Sleep(time.Minute)
				wayA.setSlow(0)
				wayB.setSlow(0)
				time.Sleep(7 * time.Second)
				r.want(t, "two", map[string]int{"a": len(names) / 2, "b": len(names) / 2})
				stopA()
				stopB()
				r.wg.Wait()
			})
		})
	}
}

func TestRestartedReplicaAcquiresLeasesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		way, stop := r.start("a", "dead", func(lease *Lease) { lease.SetPosition("7") })
		time.Sleep(5 * time.Second)
		r.want(t, "alone", map[string]int{"dead": 8})
		// It is killed: none of its requests reaches the store any more.
		way.setCut(true)
		stop()
		r.wg.Wait()

		var mu sync.Mutex
		var positions []string
		_, stop = r.start("a", "next", func(lease *Lease) {
			mu.Lock()
			defer mu.Unlock()
			positions = append(positions, lease.Position())
		})
		r.want(t, "at once", map[string]int{"next": 8})
		mu.Lock()
		for _, position := range positions {
			if position != "7" {
				t.Errorf("a lease starts at position %q, want the saved one", position)
			}
		}
		mu.Unlock()
		stop()
		r.wg.Wait()
	})
}

func TestOlderProcessWithSameNameStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		_, stopOld := r.start("a", "old", nil)
		time.Sleep(5 * time.Second)
		_, stopNew := r.start("a", "new", nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := r.count(); got["old"] != 0 || got["new"] != 8 {
			t.Errorf("after a second process with the name has started: %v", got)
		}
		stopOld()
		stopNew()
		r.wg.Wait()
	})
}

func TestIdleReplicaWritesOnlyHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas()
		_, stop := r.start("a", "a", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.store.mu.Lock()
		before := r.store.writes
		r.store.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		r.store.mu.Lock()
		if got := r.store.writes - before; got != 30 {
			t.Errorf("%d writes in an idle minute, want 30", got)
		}
		r.store.mu.Unlock()
		stop()
		r.wg.Wait()
	})
}
