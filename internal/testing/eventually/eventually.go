// Package eventually is how tests wait for what another goroutine, process or machine does and announces in no other way: a
// check is repeated until it passes. A test that waits in vain says what it waited for, for how long, how often it asked, and
// how things stood at the last look, so that a run on a machine that nobody can look at explains itself. It is for tests only.
package eventually

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// What has happened already, or does so at once, is seen at once; what takes its time is not slowed down by the looking: there is
// lastPause between two looks, and as long as a look takes where that is more, up to longestPause.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond

	longestPause = 250 * time.Millisecond
)

// Holds waits until check returns nil, and ends the test when it does not within a time. What names the wait in one sentence, as
// in "the namespace is gone"; the error of check says how things stand instead. It works in a test's cleanup, too.
func Holds(t testing.TB, within time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
	defer cancel()
	Before(ctx, t, what, check)
}

// Before is Holds for a test that has one context for all of its waits.
func Before(ctx context.Context, t testing.TB, what string, check func() error) {
	t.Helper()
	if err := Repeat(ctx, check); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Repeat repeats check until it returns nil, or until ctx is over; then it says how things stood. It is for the goroutines of a
// test, which must not end it.
func Repeat(ctx context.Context, check func() error) error {
	began, asked := time.Now(), 0
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		looking := time.Now()
		err := check()
		if err == nil {
			return nil
		}
		asked++
		again := time.NewTimer(max(pause, min(time.Since(looking), longestPause)))
		select {
		case <-ctx.Done():
			again.Stop()
			return fmt.Errorf("not so after %s and %d looks: %w", time.Since(began).Round(time.Millisecond), asked, err)
		case <-again.C:
		}
	}
}
