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
// met. A pause is at least four times as long as the previous check, up to longestPause, so that checks do not slow down what
// they wait for.
const (
	firstPause   = time.Millisecond
	lastPause    = 100 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// patience is the time that Soon waits for a change of the state. It is far longer than any change needs on a busy machine, because it must
// only end a test whose condition never holds.
const patience = 10 * time.Minute

// reportTime is the part of the time limit of the test program that Soon leaves for the report of its failure: at the limit itself, go
// test terminates the program without it.
const reportTime = 20 * time.Second

// Soon waits until check returns nil. condition is a sentence, for example "the namespace is deleted"; the error of check describes
// the current state, and what was done so far if that takes long. If the error stays the same for ten minutes, or shortly before the time limit
// of the test program, Soon fails the test with Fatalf. Soon may be called in a cleanup function, but not in a synctest bubble, where a test has
// no time limit: use Before.
func Soon(t testing.TB, condition string, check func() error) {
	t.Helper()
	ctx, cancel := limited(t)
	defer cancel()
	state, since := "", time.Now()
	Before(ctx, t, condition, func() error {
		err := check()
		switch {
		case err == nil:
		case err.Error() != state:
			state, since = err.Error(), time.Now()
		case time.Since(since) > patience:
			cancel()
		}
		return err
	})
}

// Context returns a context that ends after ten minutes, or shortly before the time limit of the test program. It is for a wait that receives the
// condition, for example from a stream: the test reports the last state when the context ends. Context may be called in a cleanup function.
func Context(t testing.TB) (context.Context, context.CancelFunc) {
	ctx, end := limited(t)
	ctx, cancel := context.WithTimeout(ctx, patience)
	return ctx, func() { cancel(); end() }
}

// limited returns a context that ends shortly before the time limit of the test program.
func limited(t testing.TB) (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(t.Context())
	if limited, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := limited.Deadline(); ok {
			return context.WithDeadline(ctx, end.Add(-reportTime))
		}
	}
	return context.WithCancel(ctx)
}

// Before is like Soon, but waits until ctx ends.
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
		timer := time.NewTimer(max(pause, min(4*time.Since(checkStarted), longestPause)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("not met after %s and %d checks: %w", time.Since(started).Round(time.Millisecond), checks, err)
		case <-timer.C:
		}
	}
}
