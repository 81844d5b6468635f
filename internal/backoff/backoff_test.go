package backoff

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const first, last = 100 * time.Millisecond, time.Second

// between fails the test unless pause is between half of delay and delay.
func between(t *testing.T, what string, pause, delay time.Duration) {
	t.Helper()
	if pause < delay/2 || pause > delay+time.Nanosecond {
		t.Errorf("%s: pause %s, want %s to %s", what, pause, delay/2, delay)
	}
}

func TestPausesDoubleUpToTheLast(t *testing.T) {
	for range 100 {
		b := New(first, last)
		for _, delay := range []time.Duration{first, 2 * first, 4 * first, 8 * first, last, last, last} {
			between(t, "growing", b.Next(), delay)
		}
		b.Reset()
		between(t, "after Reset", b.Next(), first)
	}
}

func TestLastBoundsTheFirstPause(t *testing.T) {
	between(t, "first above last", New(2*last, last).Next(), last)
}

func TestPausesAreRandom(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[New(first, last).Next()] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 first pauses have %d different durations", len(seen))
	}
}

func TestPausesAfterCountedAttempts(t *testing.T) {
	for attempt, delay := range map[int]time.Duration{0: first, 1: first, 2: 2 * first, 4: 8 * first, 5: last, 1 << 40: last} {
		between(t, "after an attempt", After(attempt, first, last), delay)
	}
}

func TestJitterVariesAroundThePeriod(t *testing.T) {
	for range 100 {
		if d := Jitter(last); d < last/2 || d >= last*3/2 {
			t.Errorf("jitter of %s: %s", last, d)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := New(time.Hour, 2*time.Hour), time.Now()
		if err := b.Wait(t.Context()); err != nil {
			t.Errorf("waiting: %v", err)
		}
		between(t, "waited", time.Since(began), time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("waiting with a deadline of a minute: %v after %s", err, time.Since(began))
		}
	})
}
