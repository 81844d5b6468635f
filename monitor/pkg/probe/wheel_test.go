package probe

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const width = 100 * time.Millisecond

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// TestWheelMatchesModel compares random operations with a map of slots. A key is due exactly once: at the first Advance
// that reaches its slot, or the next slot if its own was handled before.
func TestWheelMatchesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		latest := start.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "start")))
		w := NewWheel[int](width, rapid.IntRange(1, 16).Draw(t, "slots"), latest)
		model, next := map[int]int64{}, slotAfter(latest)
		key := rapid.IntRange(0, 30)
		offset := rapid.Int64Range(-int64(time.Second), int64(5*time.Second))
		t.Repeat(map[string]func(*rapid.T){
			"schedule": func(t *rapid.T) {
				key, at := key.Draw(t, "key"), latest.Add(time.Duration(offset.Draw(t, "at")))
				w.Schedule(key, at)
				model[key] = max(slotAfter(at), next)
			},
			"cancel": func(t *rapid.T) {
				key := key.Draw(t, "key")
				w.Cancel(key)
				delete(model, key)
			},
			"advance": func(t *rapid.T) {
				now := latest.Add(time.Duration(offset.Draw(t, "now")))
				end := now.UnixNano() / int64(width)
				var want []int
				for key, slot := range model {
					if slot <= end {
						want = append(want, key)
						delete(model, key)
					}
				}
				next = max(next, end+1)
				if now.After(latest) {
					latest = now
				}
				got := w.Advance(now)
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Fatalf("at %v: due are %v, want %v", now, got, want)
				}
			},
			"": func(t *rapid.T) {
				if w.Len() != len(model) {
					t.Fatalf("%d keys are scheduled, want %d", w.Len(), len(model))
				}
			},
		})
	})
}

// slotAfter returns the number of the first slot that does not begin before a time.
func slotAfter(at time.Time) int64 {
	slot := at.UnixNano() / int64(width)
	if at.UnixNano()%int64(width) > 0 {
		slot++
	}
	return slot
}

// TestAdvanceAfterPauseReturnsEveryDueKey: the process was stopped for longer than one revolution.
func TestAdvanceAfterPauseReturnsEveryDueKey(t *testing.T) {
	t.Parallel()
	w := NewWheel[int](width, 8, start)
	for key := range 100 {
		w.Schedule(key, start.Add(time.Duration(key)*width))
	}
	if due := w.Advance(start.Add(50 * width)); len(due) != 51 {
		t.Errorf("%d keys are due after the pause, want 51", len(due))
	}
	if due := w.Advance(start.Add(time.Hour)); len(due) != 49 || w.Len() != 0 {
		t.Errorf("%d keys are due at the end and %d remain, want 49 and 0", len(due), w.Len())
	}
}

// TestNextSpreadsKeysEvenly checks that each second of an interval gets its share of keys, that the phase of a key is
// stable, and that exactly one interval lies between two times of a key.
func TestNextSpreadsKeysEvenly(t *testing.T) {
	t.Parallel()
	const keys, interval = 30_000, 30 * time.Second
	perSecond := map[int]int{}
	for i := range keys {
		key := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		first := NextTime(key, interval, start)
		if !first.After(start) || first.After(start.Add(interval)) {
			t.Fatalf("%s: the first time is %v after the start", key, first.Sub(start))
		}
		if second := NextTime(key, interval, first); second.Sub(first) != interval {
			t.Fatalf("%s: %v between two times, want %v", key, second.Sub(first), interval)
		}
		if again := NextTime(key, interval, first.Add(-time.Nanosecond)); !again.Equal(first) {
			t.Fatalf("%s: the phase depends on the time of the call", key)
		}
		perSecond[int(first.Sub(start)/time.Second)]++
	}
	for second, count := range perSecond {
		if second < 30 && (count < keys/30*8/10 || count > keys/30*12/10) {
			t.Errorf("second %d has %d keys, want about %d", second, count, keys/30)
		}
	}
	if len(perSecond) < 30 {
		t.Errorf("only %d seconds have keys, want 30", len(perSecond))
	}
}

// BenchmarkTick measures a tick of a wheel that holds 10,000 keys of which about 33 are due.
func BenchmarkTick(b *testing.B) {
	now := start
	w := NewWheel[string](width, 4096, now)
	var keys []string
	for i := range 10_000 {
		keys = append(keys, fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		w.Schedule(keys[i], NextTime(keys[i], 30*time.Second, now))
	}
	b.ResetTimer()
	for b.Loop() {
		now = now.Add(width)
		for _, key := range w.Advance(now) {
			w.Schedule(key, NextTime(key, 30*time.Second, now))
		}
	}
}
