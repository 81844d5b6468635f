package nodepool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
)

// names returns a generator of unique machine names.
func names() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("m%d", n) }
}

func rolling(replicas, surge, unavailable int, version string) target {
	return target{replicas: replicas, version: version, kubelet: "v1", maxSurge: surge, maxUnavailable: unavailable, controlPlaneReady: true}
}

// runSteps makes steps until no change is due, and calls check after each step. It runs in a synctest bubble.
func runSteps(t *testing.T, machines []Machine, target target, scale schedule.Scale, newName func() string, check func([]Machine)) []Machine {
	t.Helper()
	for range 1000 {
		next, wait := step(machines, target, scale, time.Now(), newName)
		changed := len(next) != len(machines)
		for i := range next {
			changed = changed || next[i] != machines[i]
		}
		machines = next
		check(machines)
		switch {
		case changed:
		case wait > 0:
			time.Sleep(wait)
		default:
			return machines
		}
	}
	t.Fatal("the machines do not converge")
	return nil
}

func count(machines []Machine) (active, ready int) {
	for i := range machines {
		if machines[i].active() {
			active++
		}
		if machines[i].ready() {
			ready++
		}
	}
	return active, ready
}

func TestRollout(t *testing.T) {
	cases := map[string]struct {
		reason               string
		replicas             int
		surge, unavailable   int
		change               func(*target)
		maxAlive, minReady   int
		wantOutdated         int
		atLeast, atMost      time.Duration
		wantSettled, stuckAt bool
	}{
		"Surge": {
			reason:   "the default adds one machine before it removes one, one after the other",
			replicas: 3, surge: 1, unavailable: 0, maxAlive: 4, minReady: 3, wantSettled: true,
			atLeast: 3 * schedule.NodeReady, atMost: 3*schedule.NodeReady + 2*time.Minute,
		},
		"Unavailable": {
			reason:   "without surge, one machine is removed first",
			replicas: 3, surge: 0, unavailable: 1, maxAlive: 3, minReady: 2, wantSettled: true,
			atLeast: 3 * schedule.NodeReady, atMost: 3*schedule.NodeReady + 2*time.Minute,
		},
		"AllAtOnce": {
			reason:   "a surge as large as the pool replaces all machines at the same time",
			replicas: 4, surge: 4, unavailable: 0, maxAlive: 8, minReady: 4, wantSettled: true,
			atLeast: schedule.NodeReady, atMost: schedule.NodeReady + time.Minute,
		},
		"OnDelete": {
			reason:   "outdated machines remain until they are deleted",
			replicas: 3, surge: 1, change: func(t *target) { t.onDelete = true }, maxAlive: 3, minReady: 3, wantOutdated: 3, wantSettled: true,
		},
		"InPlace": {
			reason:   "machines are updated one at a time and not replaced",
			replicas: 3, unavailable: 1, change: func(t *target) { t.inPlace = true }, maxAlive: 3, minReady: 2, wantSettled: true,
			atLeast: 3 * schedule.NodeReady, atMost: 3*schedule.NodeReady + time.Minute,
		},
		"NeverIgnites": {
			reason:   "no old machine is removed for a new one that never joins",
			replicas: 3, surge: 1, change: func(t *target) { t.neverIgnites = true }, maxAlive: 4, minReady: 3, wantOutdated: 3,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				newName := names()
				before := rolling(c.replicas, c.surge, c.unavailable, "4.20.8")
				machines := runSteps(t, nil, before, 1, newName, func([]Machine) {})
				if !converged(machines, before) {
					t.Fatalf("the pool was not created: %+v", machines)
				}
				after := before
				after.version = "4.20.15"
				if c.change != nil {
					c.change(&after)
				}
				began := time.Now()
				machines = runSteps(t, machines, after, 1, newName, func(machines []Machine) {
					active, ready := count(machines)
					if active > c.maxAlive || ready < c.minReady {
						t.Fatalf("%s: %d machines, %d ready", c.reason, active, ready)
					}
				})
				if took := time.Since(began); took < c.atLeast || c.atMost > 0 && took > c.atMost {
					t.Errorf("%s: took %s", c.reason, took)
				}
				outdated := 0
				for i := range machines {
					if !after.matches(&machines[i]) {
						outdated++
					}
				}
				if outdated != c.wantOutdated || converged(machines, after) != c.wantSettled {
					t.Errorf("%s: %d outdated, settled %v: %+v", c.reason, outdated, converged(machines, after), machines)
				}
			})
		})
	}
}

func TestScaling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := runSteps(t, nil, rolling(2, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		first := machines[0].Name
		began := time.Now()
		machines = runSteps(t, machines, rolling(5, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		if active, ready := count(machines); active != 5 || ready != 5 || time.Since(began) != schedule.NodeReady {
			t.Errorf("scaled up to %d machines, %d ready, in %s", active, ready, time.Since(began))
		}
		began = time.Now()
		machines = runSteps(t, machines, rolling(1, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		if len(machines) != 1 || time.Since(began) != schedule.NodeDrain {
			t.Errorf("scaled down to %+v in %s", machines, time.Since(began))
		}
		if machines[0].Name != first && machines[0].Name != "m2" {
			t.Errorf("the youngest machine was kept: %+v", machines)
		}
		if machines = runSteps(t, machines, rolling(0, 1, 0, "4.20.8"), 1, newName, func([]Machine) {}); len(machines) != 0 {
			t.Errorf("scaled to zero, but machines remain: %+v", machines)
		}
	})
}

func TestStuckDrainEndsAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := runSteps(t, nil, rolling(2, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		stuck := rolling(1, 1, 0, "4.20.8")
		stuck.drainStuck = true
		for range 10 {
			machines, _ = step(machines, stuck, 1, time.Now(), newName)
			time.Sleep(time.Hour)
		}
		if len(machines) != 2 {
			t.Fatalf("a stuck drain without a timeout was given up: %+v", machines)
		}
		stuck.drainTimeout = 10 * time.Minute
		if machines = runSteps(t, machines, stuck, 1, newName, func([]Machine) {}); len(machines) != 1 {
			t.Errorf("the drain was not given up after its timeout: %+v", machines)
		}
	})
}

// TestRandomTargetsConverge changes the target at random times, checks the invariants after each step, and checks that
// the machines converge to the last target.
func TestRandomTargetsConverge(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			newName := names()
			var machines []Machine
			current := rolling(3, 1, 0, "v0")
			for range 20 {
				switch random.IntN(3) {
				case 0:
					current.replicas = random.IntN(7)
				case 1:
					current.version = fmt.Sprintf("v%d", random.IntN(3))
				case 2:
					current.maxSurge, current.maxUnavailable = 1+random.IntN(2), random.IntN(2)
				}
				most := current.replicas + current.maxSurge
				for range 1 + random.IntN(8) {
					activeBefore, _ := count(machines)
					var wait time.Duration
					machines, wait = step(machines, current, 1, time.Now(), newName)
					if active, _ := count(machines); active > max(most, activeBefore) {
						t.Fatalf("seed %d: %d active machines, at most %d are allowed", seed, active, max(most, activeBefore))
					}
					time.Sleep(time.Duration(random.Int64N(int64(wait) + 1)))
				}
			}
			machines = runSteps(t, machines, current, 1, newName, func([]Machine) {})
			if !converged(machines, current) {
				t.Errorf("seed %d: machines %+v do not match target %+v", seed, machines, current)
			}
		})
	}
}

func TestMachinesRoundTrip(t *testing.T) {
	before := []Machine{{Name: "a", Version: "4.20.8", Kubelet: "v1", Config: "c", Template: "t", Created: time.Now().UTC().Round(0)}}
	data, err := encodeMachines(before)
	if err != nil {
		t.Fatal(err)
	}
	after, err := decodeMachines(data)
	if err != nil || len(after) != 1 || after[0] != before[0] {
		t.Errorf("%+v became %+v, %v", before, after, err)
	}
	if _, err := decodeMachines(map[string]string{machinesKey: "["}); err == nil {
		t.Error("an invalid record was decoded")
	}
}
