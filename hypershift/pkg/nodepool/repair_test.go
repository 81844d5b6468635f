package nodepool

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
)

func TestRepair(t *testing.T) {
	cases := map[string]struct {
		reason                string
		replicas, unreachable int
		autoRepair            bool
		wantReplaced          int
		wantSettled           bool
		wantTooMany           bool
	}{
		"One":         {reason: "it is replaced after it has been unhealthy for long enough", replicas: 3, unreachable: 1, autoRepair: true, wantReplaced: 1, wantSettled: true},
		"Two":         {reason: "the largest number that is replaced at the same time", replicas: 3, unreachable: 2, autoRepair: true, wantReplaced: 2, wantSettled: true},
		"Too many":    {reason: "many unhealthy nodes indicate another problem, which replacing them would not solve", replicas: 4, unreachable: 3, autoRepair: true, wantTooMany: true},
		"Not asked":   {reason: "without auto-repair no node is replaced", replicas: 3, unreachable: 1},
		"Single node": {reason: "a single node is also replaced", replicas: 1, unreachable: 1, autoRepair: true, wantReplaced: 1, wantSettled: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				newName := names()
				target := rolling(c.replicas, 1, 0, "4.20.8")
				target.autoRepair = c.autoRepair
				machines := runSteps(t, nil, target, 1, newName, func([]Machine) {})
				before := machines
				target.unhealthy = map[string]bool{}
				for i := range c.unreachable {
					target.unhealthy[machines[i].Name] = true
				}
				began := time.Now()
				machines = runSteps(t, machines, target, 1, newName, func(now []Machine) {
					_, ready := count(now)
					if ready < c.replicas-c.unreachable {
						t.Fatalf("%s: %d ready", c.reason, ready)
					}
				})
				replaced := 0
				for i := range before {
					if !slices.ContainsFunc(machines, func(m Machine) bool { return m.Name == before[i].Name }) {
						replaced++
					}
				}
				if replaced != c.wantReplaced || converged(machines, target) != c.wantSettled || tooManyUnhealthy(machines, target) != c.wantTooMany {
					t.Errorf("%s: %d replaced, settled %v: %+v", c.reason, replaced, converged(machines, target), machines)
				}
				if took := time.Since(began); replaced > 0 && took != schedule.NodeUnhealthy+schedule.NodeReady {
					t.Errorf("%s: took %s", c.reason, took)
				}
			})
		})
	}
}

// TestRecoveredNodeIsNotReplaced checks that a node that reports again in time is not replaced.
func TestRecoveredNodeIsNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		target := rolling(2, 1, 0, "4.20.8")
		target.autoRepair = true
		machines := runSteps(t, nil, target, 1, newName, func([]Machine) {})
		name := machines[0].Name
		target.unhealthy = map[string]bool{name: true}
		machines, wait := step(machines, target, 1, time.Now(), newName)
		if wait != schedule.NodeUnhealthy || machines[0].ready() {
			t.Fatalf("wait %s, %+v", wait, machines[0])
		}
		time.Sleep(schedule.NodeUnhealthy - time.Second)
		target.unhealthy = nil
		machines = runSteps(t, machines, target, 1, newName, func([]Machine) {})
		if len(machines) != 2 || machines[0].Name != name || !converged(machines, target) {
			t.Errorf("%+v", machines)
		}
	})
}

// TestDrainWaitsForPods checks that a machine is not removed while pods of its node have to be evicted, up to the drain
// timeout.
func TestDrainWaitsForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := runSteps(t, nil, rolling(2, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		smaller := rolling(1, 1, 0, "4.20.8")
		machines, _ = step(machines, smaller, 1, time.Now(), newName)
		i := slices.IndexFunc(machines, func(m Machine) bool { return !m.active() })
		if i < 0 {
			t.Fatalf("no machine is marked for deletion: %+v", machines)
		}
		smaller.remainingPods = map[string]int{machines[i].Name: 1}
		time.Sleep(time.Hour)
		if machines, _ = step(machines, smaller, 1, time.Now(), newName); len(machines) != 2 {
			t.Fatalf("a machine was removed although a pod cannot be evicted: %+v", machines)
		}
		bounded := smaller
		bounded.drainTimeout = time.Hour
		if next, _ := step(machines, bounded, 1, time.Now(), newName); len(next) != 1 {
			t.Errorf("the machine remains after the drain timeout: %+v", next)
		}
		smaller.remainingPods = nil
		if next, _ := step(machines, smaller, 1, time.Now(), newName); len(next) != 1 {
			t.Errorf("the machine remains after the drain: %+v", next)
		}
	})
}

// TestNodeWithFewestPodsIsRemovedFirst checks which node is removed when the pool shrinks.
func TestNodeWithFewestPodsIsRemovedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := runSteps(t, nil, rolling(3, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		smaller := rolling(1, 1, 0, "4.20.8")
		smaller.pods = map[string]int{machines[0].Name: 1, machines[2].Name: 5}
		kept := machines[2].Name
		machines = runSteps(t, machines, smaller, 1, newName, func([]Machine) {})
		if len(machines) != 1 || machines[0].Name != kept {
			t.Errorf("machines %+v remain, want %s", machines, kept)
		}
	})
}

// TestMachinesKeepTheirSize checks that a machine keeps its VM size until it is replaced.
func TestMachinesKeepTheirSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		target := rolling(2, 1, 0, "4.20.8")
		target.vmSize, target.template = "Standard_D4s_v3", "t1"
		machines := runSteps(t, nil, target, 1, newName, func([]Machine) {})
		target.vmSize, target.template = "Standard_D8s_v3", "t2"
		machines = runSteps(t, machines, target, 1, newName, func(now []Machine) {
			for i := range now {
				if want := map[string]string{"t1": "Standard_D4s_v3", "t2": "Standard_D8s_v3"}[now[i].Template]; now[i].VMSize != want {
					t.Fatalf("%+v", now[i])
				}
			}
		})
		if !converged(machines, target) {
			t.Errorf("%+v", machines)
		}
	})
}

func TestAutoscalingDecision(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	a, wait := autoscaling{Replicas: 1}.update(3, 1, now)
	if a != (autoscaling{Replicas: 3}) || wait != 0 {
		t.Errorf("up: %+v, %s", a, wait)
	}
	a, wait = a.update(2, 1, now)
	if a != (autoscaling{Replicas: 3, FewerSince: now}) || wait != schedule.ScaleDown {
		t.Errorf("down, before the delay: %+v, %s", a, wait)
	}
	if b, _ := a.update(3, 1, now.Add(time.Minute)); b != (autoscaling{Replicas: 3}) {
		t.Errorf("up during the delay: %+v", b)
	}
	if b, wait := a.update(2, 1, now.Add(schedule.ScaleDown)); b != (autoscaling{Replicas: 2}) || wait != 0 {
		t.Errorf("down: %+v, %s", b, wait)
	}
	if b, _ := a.update(2, 0, now); b.Replicas != 2 {
		t.Errorf("down at scale 0: %+v", b)
	}
	data := map[string]string{}
	if err := a.encode(data); err != nil {
		t.Fatal(err)
	}
	if b, err := decodeAutoscale(data); err != nil || !b.equal(a) {
		t.Errorf("%+v became %+v, %v", a, b, err)
	}
	if _, err := decodeAutoscale(map[string]string{autoscaleKey: "["}); err == nil {
		t.Error("an invalid record was decoded")
	}
}
