package customer

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// pollOften makes the published pollers ask as often as they do: what takes minutes in the cloud takes seconds here.
var pollOften = &runtime.PollUntilDoneOptions{Frequency: time.Second}

// An impatient customer asks after a twentieth of what an operation has taken already, within these bounds.
const (
	leastPause = 10 * time.Millisecond
	mostPause  = time.Second
)

// wait waits for the end of an operation.
func wait[T any](ctx context.Context, c *Customer, poller *runtime.Poller[T]) (T, error) {
	if !c.Impatient {
		return poller.PollUntilDone(ctx, pollOften)
	}
	for began := time.Now(); !poller.Done(); {
		pause := time.NewTimer(min(max(time.Since(began)/20, leastPause), mostPause))
		select {
		case <-ctx.Done():
			pause.Stop()
			var nothing T
			return nothing, ctx.Err()
		case <-pause.C:
		}
		if _, err := poller.Poll(ctx); err != nil {
			var nothing T
			return nothing, err
		}
	}
	return poller.Result(ctx)
}
