package nodepool

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnreachableNodeIsReplacedFirst checks that an unreachable node counts as unavailable, so that an upgrade replaces
// it before it removes healthy nodes.
func TestUnreachableNodeIsReplacedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := runSteps(t, nil, rolling(3, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		old := slices.Clone(machines)
		target := rolling(3, 1, 0, "4.20.16")
		target.unhealthy = map[string]bool{old[2].Name: true}
		unreachableExists := true
		machines = runSteps(t, machines, target, 1, newName, func(now []Machine) {
			has := func(name string) bool {
				return slices.ContainsFunc(now, func(m Machine) bool { return m.Name == name })
			}
			unreachableExists = unreachableExists && has(old[2].Name)
			if unreachableExists && !(has(old[0].Name) && has(old[1].Name)) {
				t.Error("a healthy node was removed before the unreachable one")
			}
		})
		for _, m := range machines {
			if m.Version != "4.20.16" {
				t.Errorf("final machine %s has version %s", m.Name, m.Version)
			}
		}
		if len(machines) != 3 || unreachableExists {
			t.Errorf("final machines: %+v", machines)
		}
	})
}

// TestScaleToZeroEndsAnUpgrade checks that an upgrade adds no nodes after the pool is scaled to zero.
func TestScaleToZeroEndsAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := runSteps(t, nil, rolling(3, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		machines, _ = step(machines, rolling(3, 1, 0, "4.20.16"), 1, time.Now(), newName)
		most := len(machines)
		machines = runSteps(t, machines, rolling(0, 1, 0, "4.20.16"), 1, newName, func(now []Machine) {
			if most = min(most, len(now)); len(now) > most {
				t.Errorf("a node was added while all are being removed: %+v", now)
			}
		})
		if len(machines) != 0 {
			t.Errorf("final machines: %+v", machines)
		}
	})
}
