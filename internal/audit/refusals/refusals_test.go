package refusals

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// memory is a Recorder in memory that may be full.
type memory struct {
	audit.Recorder
	mu      sync.Mutex
	full    bool
	records []audit.Record
}

func (m *memory) Append(_ context.Context, r audit.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return errors.New("the queue is full")
	}
	m.records = append(m.records, r)
	return nil
}

// total returns the number of records and of the refusals that they stand for.
func (m *memory) total() (records, refused int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.records {
		refused += max(r.Count, 1)
	}
	return len(m.records), refused
}

func refusal(peer, person, action string) audit.Record {
	return audit.Record{Peer: peer, Person: audit.Person{Name: person}, Action: action, Outcome: audit.Refused, Code: "Forbidden"}
}

// run runs test with an Aggregator in a bubble of synctest.
func run(t *testing.T, test func(t *testing.T, a *Aggregator, m *memory, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		a := New(m)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { a.Run(ctx) })
		stop := sync.OnceFunc(func() { cancel(); group.Wait() })
		defer stop()
		test(t, a, m, stop)
	})
}

func requireTotal(t *testing.T, m *memory, wantRecords, wantRefused int) {
	t.Helper()
	if records, refused := m.total(); records != wantRecords || refused != wantRefused {
		t.Errorf("%d records of %d refusals, want %d of %d", records, refused, wantRecords, wantRefused)
	}
}

// TestFloodHasTwoRecords: the first refusal of a window is recorded at once, and the others together.
func TestFloodHasTwoRecords(t *testing.T) {
	run(t, func(t *testing.T, a *Aggregator, m *memory, stop func()) {
		for range 1000 {
			a.Refused(t.Context(), refusal("frontend", "", "Dump"))
		}
		a.Refused(t.Context(), refusal("frontend", "ada", "Dump"))
		a.Refused(t.Context(), refusal("backend", "", "Dump"))
		requireTotal(t, m, 3, 3)
		time.Sleep(Window + time.Second)
		synctest.Wait()
		requireTotal(t, m, 4, 1002)
		// The next window begins with a record again.
		a.Refused(t.Context(), refusal("frontend", "", "Dump"))
		requireTotal(t, m, 5, 1003)
		a.Refused(t.Context(), refusal("frontend", "", "Dump"))
		stop()
		requireTotal(t, m, 6, 1004)
	})
}

// TestKindsOfCallerAreBounded: a caller that invents actions does not get a record for each, and does not hide the refusals of another
// caller.
func TestKindsOfCallerAreBounded(t *testing.T) {
	run(t, func(t *testing.T, a *Aggregator, m *memory, _ func()) {
		for n := range 5000 {
			a.Refused(t.Context(), refusal("frontend", "", fmt.Sprint("GET /", n)))
		}
		requireTotal(t, m, maxKinds, maxKinds)
		a.Refused(t.Context(), refusal("backend", "", "GET /x"))
		a.Refused(t.Context(), refusal("frontend", "ada", "GET /x"))
		requireTotal(t, m, maxKinds+2, maxKinds+2)
		time.Sleep(Window + time.Second)
		synctest.Wait()
		requireTotal(t, m, maxKinds+3, 5002)
		if last := m.records[len(m.records)-1]; last.Peer != "frontend" || last.Action != OtherAction {
			t.Errorf("the record of the other refusals is %+v", last)
		}
		// The next window has as many kinds again.
		a.Refused(t.Context(), refusal("frontend", "", "GET /0"))
		requireTotal(t, m, maxKinds+4, 5003)
	})
}

// TestFullQueueLosesNoRefusal: refusals that cannot be stored are counted until they can.
func TestFullQueueLosesNoRefusal(t *testing.T) {
	run(t, func(t *testing.T, a *Aggregator, m *memory, _ func()) {
		m.full = true
		for range 3 {
			a.Refused(t.Context(), refusal("frontend", "", "Dump"))
		}
		time.Sleep(2*Window + time.Second)
		synctest.Wait()
		requireTotal(t, m, 0, 0)
		m.mu.Lock()
		m.full = false
		m.mu.Unlock()
		time.Sleep(Window)
		synctest.Wait()
		requireTotal(t, m, 1, 3)
	})
}
