// Package eventually lets tests wait for a condition that another goroutine, process or machine brings about without a
// notification: it repeats a check until the check passes. The error of a wait that fails contains the name of the condition,
// the time and number of checks, and the error of the last check, so that a failure in CI explains itself.
package eventually

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// The pauses between two checks grow from firstPause to lastPause, so that a test continues soon after the condition is
// met. A pause is at least as long as the previous check, up to longestPause, so that checks do not slow down what they
// wait for.
const (
	firstPause   = time.Millisecond
	lastPause    = 20 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// Holds waits until check returns nil, and fails the test with Fatalf after timeout. condition is a sentence, for example
// "the namespace is deleted"; the error of check describes the current state. Holds may be called in a cleanup function.
func Holds(t testing.TB, timeout time.Duration, condition string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
	defer cancel()
	Before(ctx, t, condition, check)
}

// Before is like Holds with a context instead of a timeout, for a test with one deadline for all of its waits.
func Before(ctx context.Context, t testing.TB, condition string, check func() error) {
	t.Helper()
	if err := Repeat(ctx, check); err != nil {
		t.Fatalf("%s: %v", condition, err)
	}
}

// Repeat repeats check until it returns nil. If ctx ends first, it returns an error that wraps the last error of check.
// It is for goroutines other than that of the test, which must not call Fatalf.
func Repeat(ctx context.Context, check func() error) error {
	started, checks := time.Now(), 0
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		checkStarted := time.Now()
		err := check()
		if err == nil {
			return nil
		}
		checks++
		timer := time.NewTimer(max(pause, min(time.Since(checkStarted), longestPause)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("not met after %s and %d checks: %w", time.Since(started).Round(time.Millisecond), checks, err)
		case <-timer.C:
		}
	}
}
