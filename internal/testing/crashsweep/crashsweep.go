// Package crashsweep is for tests that kill a process at each of its external writes. A play is what happens to the world
// from a beginning to an end; it is played once undisturbed, then once for each point at which the process can die with a
// different state of the world, with the process dying there and another taking over, and then with two deaths at points
// drawn from the seed. Every end must equal the undisturbed one.
//
// A play is determined by its seed as far as the process itself is: CRASH_SEED=<seed> plays that one alone, which is how a
// failure is replayed. CRASH_PAIRS=<n> draws that many pairs of deaths. What the process writes is up to the test: it calls
// Point just before and just after each write of the process, wherever it can get between the process and the world.
package crashsweep

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ErrDead is the answer to whatever a dead process tries.
var ErrDead = errors.New("the process is dead")

// Deaths are those of one process in one play. The process is killed by Point answering ErrDead from then on, until the
// test has replaced it and calls Revive.
type Deaths struct {
	seed uint64

	mu sync.Mutex
	// at are the points, from 1 and counted over all lives, at which it is still to die, in order.
	at     []int
	points []string
	dead   bool
	died   chan struct{}
}

func newDeaths(seed uint64, at ...int) *Deaths {
	return &Deaths{seed: seed, at: at, died: make(chan struct{})}
}

// Seed is the play's; 0 is the undisturbed one.
func (d *Deaths) Seed() uint64 { return d.seed }

// Point is passed by the process just before or just after a write, as its name says. An error keeps the process from going
// on: it has died here, or before.
func (d *Deaths) Point(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return ErrDead
	}
	d.points = append(d.points, name)
	if len(d.at) == 0 || len(d.points) < d.at[0] {
		return nil
	}
	d.at, d.dead = d.at[1:], true
	close(d.died)
	return ErrDead
}

// Dead says whether the process may do nothing any more: for what it does besides writing.
func (d *Deaths) Dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// Died is closed when the process that lives now dies.
func (d *Deaths) Died() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.died
}

// Revive begins the life of the process that takes over. Nothing of the one before may be running any more.
func (d *Deaths) Revive() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead, d.died = false, make(chan struct{})
}

func (d *Deaths) passed() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.points
}

// shortPoints is about how many points are tried with -short, and pairs how many seeds with two deaths without.
const (
	shortPoints = 8
	pairs       = 4
)

// Sweep plays. play must be the same each time but for the deaths, with names of its own for what it makes (Seed is a good
// part of them), and returns the end of the world, which cmp compares.
func Sweep(t *testing.T, play func(t *testing.T, d *Deaths) any) {
	t.Helper()
	SweepFew(t, shortPoints, play)
}

// SweepFew is Sweep for plays that take longer: with -short about that many points are tried.
func SweepFew(t *testing.T, short int, play func(t *testing.T, d *Deaths) any) {
	t.Helper()
	sweep(t, short, func(*testing.T) {}, play)
}

// Parallel is SweepFew for plays of which each makes a world of its own: they are played at the same time, as many as
// -parallel says.
func Parallel(t *testing.T, short int, play func(t *testing.T, d *Deaths) any) {
	t.Helper()
	sweep(t, short, (*testing.T).Parallel, play)
}

func sweep(t *testing.T, short int, begin func(*testing.T), play func(t *testing.T, d *Deaths) any) {
	t.Helper()
	undisturbed := newDeaths(0)
	want := play(t, undisturbed)
	points := undisturbed.passed()
	if t.Failed() {
		return
	}
	t.Logf("%d points: %v", len(points), points)
	var failed atomic.Bool
	for _, seed := range seeds(t, len(points), short) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			begin(t)
			if failed.Load() {
				t.Skip("one failure is enough")
			}
			d := newDeaths(seed, plan(seed, len(points))...)
			// A play that gives up says where it died, too.
			defer func() {
				if t.Failed() {
					failed.Store(true)
					t.Logf("it died at %v of %v; replay it with CRASH_SEED=%d", plan(seed, len(points)), d.passed(), seed)
				}
			}()
			got := play(t, d)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the end is another than undisturbed (-undisturbed +got):\n%s", diff)
			}
		})
	}
}

// plan is where the process dies in the play of a seed: at the point of that number, or, beyond the last, at two points
// that follow from the seed.
func plan(seed uint64, points int) []int {
	if seed <= uint64(points) {
		return []int{int(seed)}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	first := 1 + random.IntN(points)
	return []int{first, first + 1 + random.IntN(max(1, points/2))}
}

// seeds to play.
func seeds(t *testing.T, points, short int) []uint64 {
	t.Helper()
	number := func(name string) uint64 {
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
	if seed := number("CRASH_SEED"); seed > 0 {
		return []uint64{seed}
	}
	var list []uint64
	step := 1
	if testing.Short() {
		step = max(1, (points+short-1)/short)
	}
	for at := 1; at <= points; at += step {
		list = append(list, uint64(at))
	}
	drawn := number("CRASH_PAIRS")
	if drawn == 0 && !testing.Short() {
		drawn = pairs
	}
	for i := range drawn {
		list = append(list, uint64(points)+1+i)
	}
	return list
}
