package crashsweep

import (
	"slices"
	"testing"
)

// ledger is a world with two accounts, and a process that moves money between them in two writes.
type ledger struct {
	from, to int
	// written is the transfer that was noted before anything was moved.
	written bool
}

// transfer is the process: what it does follows from the ledger alone, so it can be begun anew.
func (l *ledger) transfer(d *Deaths) error {
	steps := []struct {
		name string
		due  func() bool
		do   func()
	}{
		{"note", func() bool { return !l.written && l.from == 10 }, func() { l.written = true }},
		{"move", func() bool { return l.written && l.from == 10 }, func() { l.from, l.to = 0, 10 }},
		{"clear", func() bool { return l.written }, func() { l.written = false }},
	}
	for _, s := range steps {
		if !s.due() {
			continue
		}
		if err := d.Point("before " + s.name); err != nil {
			return err
		}
		s.do()
		if err := d.Point("after " + s.name); err != nil {
			return err
		}
	}
	return nil
}

func TestSweepKillsAtEveryPoint(t *testing.T) {
	t.Setenv("CRASH_PAIRS", "20")
	var lives []int
	Sweep(t, func(t *testing.T, d *Deaths) any {
		l, lived := &ledger{from: 10}, 1
		for l.transfer(d) != nil {
			if !d.Dead() {
				t.Fatal("it was refused, but is not dead")
			}
			<-d.Died()
			d.Revive()
			lived++
		}
		lives = append(lives, lived)
		return map[string]int{"from": l.from, "to": l.to}
	})
	if lives[0] != 1 || slices.Contains(lives[1:7], 1) || !slices.Contains(lives[7:], 3) {
		t.Errorf("lives in each play: %v; want one undisturbed, two at each of 6 points, and three in some of the pairs", lives)
	}
}

func TestSeedsAreReplayed(t *testing.T) {
	for seed := uint64(1); seed < 100; seed++ {
		at := plan(seed, 10)
		if !slices.Equal(at, plan(seed, 10)) || at[0] < 1 || at[0] > 10 || seed <= 10 && len(at) != 1 || seed > 10 && (len(at) != 2 || at[1] <= at[0]) {
			t.Errorf("seed %d: %v", seed, at)
		}
	}
	t.Setenv("CRASH_SEED", "17")
	if got := seeds(t, 10, 1); !slices.Equal(got, []uint64{17}) {
		t.Errorf("CRASH_SEED=17 plays %v", got)
	}
}
