// Package backoff computes the pauses between attempts that failed. All services retry in the same way: pauses double from
// a first to a last value, and each is randomized so that clients that failed together do not retry together.
//
// It sets the policy on top of github.com/cenkalti/backoff and adds what that library leaves to its callers: waiting that
// ends with a context, and pauses for attempts that a database counts. Waiting uses the time package, so tests run it on the
// virtual time of testing/synctest. Controllers whose queues come from client-go keep the rate limiters of those queues.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff yields growing pauses. It is not safe for concurrent use.
type Backoff struct {
	intervals backoff.ExponentialBackOff
}

// New returns a Backoff whose delay begins at first and doubles with each pause up to last. A pause is a random duration
// between half of the delay and the delay, so last bounds every pause.
func New(first, last time.Duration) *Backoff {
	// The library randomizes around the middle of its interval: 3/4 ± 1/3 of it is the range from 1/2 to 1.
	return &Backoff{intervals: backoff.ExponentialBackOff{
		InitialInterval: min(first, last) * 3 / 4, MaxInterval: last * 3 / 4,
		Multiplier: 2, RandomizationFactor: 1. / 3,
	}}
}

// Next returns the next pause.
func (b *Backoff) Next() time.Duration { return b.intervals.NextBackOff() }

// Reset makes the next pause one of the first delay. Call it after a success.
func (b *Backoff) Reset() { b.intervals.Reset() }

// Wait sleeps for the next pause. It returns the error of ctx if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for pause. It returns the error of ctx if ctx ends first.
func Sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// After returns the pause after the given attempt, counted from 1. It is for attempts that are counted in a database.
func After(attempt int, first, last time.Duration) time.Duration {
	b := New(first, last)
	// After 62 doublings any delay has reached its bound.
	for range min(attempt, 62) - 1 {
		b.Next()
	}
	return b.Next()
}

// Jitter returns a random duration between half of period and one and a half. Replicas use it for periodic work, so that
// they do not do it at the same time.
func Jitter(period time.Duration) time.Duration { return period/2 + rand.N(period) }
