// Package crashsweep tests that a process can crash at any of its external writes and that its replacement completes the work.
//
// A test provides a scenario: a function that starts a process, makes requests and returns the final external state.
// Sweep runs the scenario once without a crash, then once for each point where a crash leaves a different external state,
// and then with two crashes at points drawn from a seed. Every run must return the same state as the undisturbed run.
//
// The process needs no code for the test. The scenario calls Injector.Point just before and just after each
// external write, wherever it can intercept one: HTTP transports, gRPC interceptors and a PostgreSQL proxy are in this
// package.
//
// The seed determines where a run crashes. CRASH_SEED=<seed> replays one run; CRASH_PAIRS=<n> draws n pairs of crashes.
package crashsweep

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

const (
	// sample is the number of crash points in `make test`, at most. They are spread evenly.
	sample = 2
	// defaultPairs is the number of runs with two crashes in `make nightly`.
	defaultPairs = 4
)

// Options configure a sweep. The zero value is valid.
type Options struct {
	// Parallel runs the scenarios concurrently, limited by -parallel. Each run must then build its own environment.
	Parallel bool
}

// Sweep runs scenario without a crash and then with crashes, and compares the returned states with cmp.Diff.
//
// Apart from the crashes, scenario must do the same in every run. Runs that share an environment derive the names of their
// objects from Injector.Seed.
func Sweep(t *testing.T, options Options, scenario func(t *testing.T, injector *Injector) any) {
	t.Helper()
	undisturbed := newInjector(0)
	want := scenario(t, undisturbed)
	points := undisturbed.Passed()
	if t.Failed() {
		return
	}
	t.Logf("%d crash points: %v", len(points), points)
	var failed atomic.Bool
	for _, seed := range seeds(t, len(points)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			if options.Parallel {
				t.Parallel()
			}
			if failed.Load() {
				t.Skip("another seed has failed")
			}
			crashAt := crashPoints(seed, len(points))
			injector := newInjector(seed, crashAt...)
			injector.reference = undisturbed.states
			defer func() { // Also reports the crash points of a scenario that called Fatal.
				if t.Failed() {
					failed.Store(true)
					t.Logf("crashed at %v of %v; replay with CRASH_SEED=%d", crashAt, injector.Passed(), seed)
				}
			}()
			got := scenario(t, injector)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the final state differs from the undisturbed run (-undisturbed +got):\n%s", diff)
			}
		})
	}
}

// crashPoints returns the points, counted from 1, at which the run of a seed crashes. A seed up to the number of points
// crashes at that point; a higher seed crashes at two points that follow from it.
func crashPoints(seed uint64, points int) []int {
	if seed <= uint64(points) {
		return []int{int(seed)}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	first := 1 + random.IntN(points)
	return []int{first, first + 1 + random.IntN(max(1, points/2))}
}

// seeds returns the seeds to run after the undisturbed run.
func seeds(t *testing.T, points int) []uint64 {
	t.Helper()
	if seed := environmentNumber(t, "CRASH_SEED"); seed > 0 {
		return []uint64{seed}
	}
	var list []uint64
	step := 1
	if !nightly.Run() {
		step = max(1, (points+sample-1)/sample)
	}
	for at := 1; at <= points; at += step {
		list = append(list, uint64(at))
	}
	pairs := environmentNumber(t, "CRASH_PAIRS")
	if pairs == 0 && nightly.Run() {
		pairs = defaultPairs
	}
	for i := range pairs {
		list = append(list, uint64(points)+1+i)
	}
	return list
}

// environmentNumber returns the value of an environment variable, or 0 if it is not set.
func environmentNumber(t *testing.T, name string) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}
