package database

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// maxAttempts is how often Retry calls decide before it returns the conflict.
const maxAttempts = 8

// The pauses between the attempts. The winner of a conflict needs about a round trip, 5 ms; several losers need more time.
const (
	minConflictPause = 5 * time.Millisecond
	maxConflictPause = 40 * time.Millisecond
)

// Retry calls decide, which reads, decides and commits, and repeats it as long as the commit fails with a WriteConflict.
// After 8 conflicts the error has the kind Conflict and a Retry-After of one second.
func Retry(ctx context.Context, decide func(ctx context.Context) error) error {
	pauses := backoff.New(minConflictPause, maxConflictPause)
	for attempt := 1; ; attempt++ {
		err := decide(ctx)
		if _, conflict := AsWriteConflict(err); !conflict {
			return err
		}
		if attempt == maxAttempts {
			return apierror.New(apierror.Conflict, "The resource is being changed by other requests.").WithRetryAfter(time.Second).WithCause(err)
		}
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}
