package crashsweep

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// ledger is the external state: two accounts and a transfer between them.
type ledger struct {
	from, to int
	// recorded reports whether the transfer is recorded and not yet completed.
	recorded bool
}

// transfer moves the money in three writes. It derives its next step from the ledger, so that it can be repeated.
func (l *ledger) transfer(points Points) error {
	steps := []struct {
		name string
		due  func() bool
		do   func()
	}{
		{"record", func() bool { return !l.recorded && l.from == 10 }, func() { l.recorded = true }},
		{"move", func() bool { return l.recorded && l.from == 10 }, func() { l.from, l.to = 0, 10 }},
		{"clear", func() bool { return l.recorded }, func() { l.recorded = false }},
	}
	for _, s := range steps {
		if !s.due() {
			continue
		}
		if err := points.Point("before " + s.name); err != nil {
			return err
		}
		s.do()
		if err := points.Point("after " + s.name); err != nil {
			return err
		}
	}
	return nil
}

// checkInstances checks the number of instances in the runs of a transfer at all points, with CRASH_PAIRS=20.
func checkInstances(t *testing.T, instances []int) {
	t.Helper()
	if instances[0] != 1 || slices.Contains(instances[1:7], 1) || !slices.Contains(instances[7:], 3) {
		t.Errorf("instances by run: %v; want 1 without a crash, 2 at each of 6 points, and 3 in some of the pairs", instances)
	}
}

func TestSweepCrashesAtEveryPoint(t *testing.T) {
	t.Setenv(nightly.Variable, "1")
	t.Setenv("CRASH_PAIRS", "20")
	var instances []int
	Sweep(t, Options{}, func(t *testing.T, injector *Injector) any {
		l, started := &ledger{from: 10}, 1
		for l.transfer(injector) != nil {
			if !injector.Crashed() {
				t.Fatal("a point returned an error without a crash")
			}
			<-injector.Done()
			injector.Restart()
			started++
		}
		instances = append(instances, started)
		return map[string]int{"from": l.from, "to": l.to}
	})
	checkInstances(t, instances)
}

func TestSuperviseReplacesCrashedInstances(t *testing.T) {
	t.Setenv(nightly.Variable, "1")
	t.Setenv("CRASH_PAIRS", "20")
	var instances []int
	Sweep(t, Options{}, func(t *testing.T, injector *Injector) any {
		l, started, completed := &ledger{from: 10}, 0, make(chan struct{})
		stop := injector.Supervise(func() func() {
			started++
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				if l.transfer(injector) == nil {
					close(completed)
				}
			}()
			return func() { <-stopped }
		})
		<-completed
		stop()
		stop()
		if injector.Crashed() { // at the last point, after the transfer
			t.Error("completed although crashed")
		}
		instances = append(instances, started)
		return map[string]int{"from": l.from, "to": l.to}
	})
	checkInstances(t, instances)
}

func TestServerRetriesRequestsWithoutResponse(t *testing.T) {
	t.Setenv(nightly.Variable, "1")
	t.Setenv("CRASH_PAIRS", "20")
	var instances []int
	Sweep(t, Options{}, func(t *testing.T, injector *Injector) any {
		l, started := &ledger{from: 10}, 0
		server := StartServer(t, injector, func() (http.Handler, func()) {
			started++
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if l.transfer(injector) != nil {
					<-r.Context().Done()
					w.WriteHeader(http.StatusInternalServerError)
				}
			}), func() {}
		})
		response, retried := server.Send(func() *http.Request { return httptest.NewRequest(http.MethodPost, "/", nil) })
		if response.Code != http.StatusOK || retried != (started > 1) {
			t.Errorf("status %d, retried %t with %d instances", response.Code, retried, started)
		}
		instances = append(instances, started)
		return map[string]int{"from": l.from, "to": l.to}
	})
	checkInstances(t, instances)
}

// failures counts the errors that a test helper reports.
type failures struct {
	testing.TB
	count int
	end   time.Time // of the test program; zero for none
}

func (f *failures) Deadline() (time.Time, bool) { return f.end, !f.end.IsZero() }

func (f *failures) Helper() {}

func (f *failures) Errorf(string, ...any) { f.count++ }

func TestCheckpointWaitsForUndisturbedState(t *testing.T) {
	ready := func() error { return nil }
	undisturbed := newInjector(0)
	for _, state := range []string{"one", "two"} {
		undisturbed.Checkpoint(t, "undisturbed", ready, func() any { return state })
	}
	injector, observed := newInjector(1), &failures{TB: t}
	injector.reference = undisturbed.states
	calls := 0
	count := func() any { calls++; return [...]string{"zero", "one"}[min(calls, 2)-1] }
	if got := injector.Checkpoint(observed, "first", ready, count); got != "one" || calls != 2 || observed.count != 0 {
		t.Errorf("got %v after %d calls with %d errors, want one after 2 calls", got, calls, observed.count)
	}
	observed.end = time.Now()
	if got := injector.Checkpoint(observed, "second", ready, count); got != "one" || observed.count != 1 {
		t.Errorf("a state that is not reached: got %v with %d errors, want 1 error", got, observed.count)
	}
	blocked := func() error { return errors.New("busy") }
	if got := injector.Checkpoint(observed, "third", blocked, count); got != "one" || observed.count != 2 {
		t.Errorf("a process that is never ready: got %v with %d errors, want 2 errors", got, observed.count)
	}
}

func TestSeedDeterminesCrashPoints(t *testing.T) {
	for seed := uint64(1); seed < 100; seed++ {
		at := crashPoints(seed, 10)
		if !slices.Equal(at, crashPoints(seed, 10)) || at[0] < 1 || at[0] > 10 || seed <= 10 && len(at) != 1 || seed > 10 && (len(at) != 2 || at[1] <= at[0]) {
			t.Errorf("seed %d: %v", seed, at)
		}
	}
	t.Setenv("CRASH_SEED", "17")
	if got := seeds(t, 10); !slices.Equal(got, []uint64{17}) {
		t.Errorf("with CRASH_SEED=17 the seeds are %v", got)
	}
}

func TestProcessIsReplacedAndKeepsRunning(t *testing.T) {
	t.Setenv(nightly.Variable, "1")
	t.Setenv("CRASH_PAIRS", "20")
	var count, target, instances atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			count.Add(1)
		}
	}))
	defer server.Close()
	p, reached := &Process{}, make(chan struct{}, 1)
	client := &http.Client{Transport: p.KubernetesTransport(http.DefaultTransport)}
	// The process increments the count on the server up to target, one request after the other.
	p.Start(func() func() {
		instances.Add(1)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				if count.Load() < target.Load() {
					response, err := client.Post(server.URL+"/count", "text/plain", nil)
					if err != nil {
						<-stop
						return
					}
					_ = response.Body.Close()
					continue
				}
				select {
				case reached <- struct{}{}:
				case <-stop:
					return
				}
			}
		}()
		return func() { close(stop); <-stopped }
	})
	defer p.Stop()
	Sweep(t, Options{}, func(t *testing.T, injector *Injector) any {
		countBefore, instancesBefore := count.Load(), instances.Load()
		p.During(injector, func() {
			target.Store(countBefore + 3)
			for count.Load() < countBefore+3 {
				<-reached
			}
		})
		if p.Crashed() {
			t.Error("no instance is running after the run")
		}
		replaced := instances.Load() - instancesBefore
		if injector.Seed() == 0 && replaced != 0 || injector.Seed() > 0 && injector.Seed() <= 6 && replaced != 1 {
			t.Errorf("seed %d: replaced %d times", injector.Seed(), replaced)
		}
		return count.Load() - countBefore
	})
}

func TestIdleNeedsReportAndNoWrite(t *testing.T) {
	p, busy := &Process{}, errors.New("busy")
	p.Start(func() func() { return func() {} })
	defer p.Stop()
	for name, c := range map[string]struct {
		report func() error
		idle   bool
	}{
		"Idle":    {func() error { return nil }, true},
		"Busy":    {func() error { return busy }, false},
		"Writing": {func() error { return p.Point("write") }, false},
	} {
		if err := p.Idle(c.report); (err == nil) != c.idle {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.During(newInjector(1, 1), func() {
		if err := p.Idle(func() error { _ = p.Point("write"); return nil }); !errors.Is(err, ErrCrashed) {
			t.Errorf("with a crash: %v", err)
		}
	})
	if err := p.Idle(func() error { return nil }); err != nil {
		t.Errorf("after the replacement: %v", err)
	}
}
