package database

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// mostRaces is how often Retry decides anew before it gives up.
const mostRaces = 8

// Retry runs decide, which reads, decides and commits, and runs it again as long as its commit lost a race. A decision
// that keeps losing ends in a Conflict with a Retry-After of one second.
func Retry(ctx context.Context, decide func(ctx context.Context) error) error {
	for attempt := 1; ; attempt++ {
		err := decide(ctx)
		if _, lost := AsWriteConflict(err); !lost {
			return err
		}
		if attempt == mostRaces {
			return apierror.New(apierror.Conflict, "The resource is being changed by other requests.").WithRetryAfter(time.Second).WithCause(err)
		}
		// The winner needs about a round trip to be done; more losers wait longer, apart from each other.
		timer := time.NewTimer(rand.N(time.Duration(attempt) * 5 * time.Millisecond))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}
