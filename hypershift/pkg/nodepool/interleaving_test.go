package nodepool

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestALostNodeIsReplacedFirst: a node that does not report counts as one that is not available, so that an upgrade costs no
// other before it.
func TestALostNodeIsReplacedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := follow(t, nil, rolling(3, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		old := slices.Clone(machines)
		target := rolling(3, 1, 0, "4.20.16")
		target.unhealthy = map[string]bool{old[2].Name: true}
		lostWasThere := true
		machines = follow(t, machines, target, 1, newName, func(now []Machine) {
			has := func(name string) bool {
				return slices.ContainsFunc(now, func(m Machine) bool { return m.Name == name })
			}
			lostWasThere = lostWasThere && has(old[2].Name)
			if lostWasThere && !(has(old[0].Name) && has(old[1].Name)) {
				t.Error("a node that is well goes before the one that was lost")
			}
		})
		for _, m := range machines {
			if m.Version != "4.20.16" {
				t.Errorf("at the end %s runs %s", m.Name, m.Version)
			}
		}
		if len(machines) != 3 || lostWasThere {
			t.Errorf("at the end there are %+v", machines)
		}
	})
}

// TestScaleToZeroEndsAnUpgrade: with no nodes left there is none to replace, and none comes.
func TestScaleToZeroEndsAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newName := names()
		machines := follow(t, nil, rolling(3, 1, 0, "4.20.8"), 1, newName, func([]Machine) {})
		machines, _ = step(machines, rolling(3, 1, 0, "4.20.16"), 1, time.Now(), newName)
		most := len(machines)
		machines = follow(t, machines, rolling(0, 1, 0, "4.20.16"), 1, newName, func(now []Machine) {
			if most = min(most, len(now)); len(now) > most {
				t.Errorf("a node comes while all are to leave: %+v", now)
			}
		})
		if len(machines) != 0 {
			t.Errorf("at the end there are %+v", machines)
		}
	})
}
