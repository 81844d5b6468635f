package customer

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// pollOptions shorten the interval of the published pollers, because operations take seconds in a local region.
var pollOptions = &runtime.PollUntilDoneOptions{Frequency: time.Second}

// With fast polling, the pause is a twentieth of the elapsed time, within these bounds.
const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

// wait waits until an operation is terminal and returns its result.
func wait[T any](ctx context.Context, c *Customer, poller *runtime.Poller[T]) (T, error) {
	if !c.FastPolling {
		return poller.PollUntilDone(ctx, pollOptions)
	}
	for began := time.Now(); !poller.Done(); {
		pause := time.NewTimer(min(max(time.Since(began)/20, minPause), maxPause))
		select {
		case <-ctx.Done():
			pause.Stop()
			var zero T
			return zero, ctx.Err()
		case <-pause.C:
		}
		if _, err := poller.Poll(ctx); err != nil {
			var zero T
			return zero, err
		}
	}
	return poller.Result(ctx)
}
