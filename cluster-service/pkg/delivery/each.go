package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// eachRetry is the shortest pause before clusters are gone through again of which one could not be served.
const eachRetry = 5 * time.Second

// each does something for clusters, one after the other. One for which it cannot be done holds up no other, unless it is the
// database that is away.
func each(ctx context.Context, clusterUIDs []string, do func(clusterUID string) error) error {
	var failed []error
	for _, uid := range clusterUIDs {
		err := do(uid)
		if err == nil {
			continue
		}
		failed = append(failed, fmt.Errorf("cluster %s: %w", uid, err))
		if ctx.Err() != nil || store.IsUnavailable(err) {
			break
		}
	}
	return errors.Join(failed...)
}

// untilNext is how long there is nothing to do: until the next thing is due, zero being unknown, or for an interval at the most;
// and no time when there is more than was looked at, unless some of that could not be done.
func untilNext(now, next time.Time, interval time.Duration, more bool, err error) time.Duration {
	wait := interval
	switch {
	case more:
		wait = 0
	case !next.IsZero():
		wait = max(0, min(next.Sub(now), interval))
	}
	if err != nil {
		wait = max(wait, min(eachRetry, interval))
	}
	return wait
}
