// Package clocktest has a clock that stands until a test advances it, so that no test depends on how fast the machine is.
package clocktest

import (
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// Clock implements clock.WithDelayedExecution. It is safe for concurrent use. A timer without a duration fires at once, as with the real clock.
type Clock struct{ *clocktesting.FakeClock }

// New returns a clock that stands at the current time.
func New() Clock { return Clock{clocktesting.NewFakeClock(time.Now())} }

// NewTimer returns a timer that fires when the clock has advanced by d.
func (c Clock) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.fireDue(d)
	return timer
}

// AfterFunc calls f in a goroutine of its own when the clock has advanced by d. The embedded clock would call f while it is locked, so that f could not
// use it.
func (c Clock) AfterFunc(d time.Duration, f func()) clock.Timer {
	timer := c.FakeClock.AfterFunc(d, func() { go f() })
	c.fireDue(d)
	return timer
}

// fireDue fires a new timer if its duration is over. The embedded clock fires timers only when it advances.
func (c Clock) fireDue(d time.Duration) {
	if d <= 0 {
		c.Step(0)
	}
}
