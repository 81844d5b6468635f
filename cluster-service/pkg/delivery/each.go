package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// eachRetry is the minimum pause before the next pass over clusters when one of them failed.
const eachRetry = 5 * time.Second

// each calls do for clusters, one after the other. A failure does not stop the others, unless the database is unavailable.
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

// untilNext returns the pause before the next pass: until next, where zero means unknown, and at most interval. It returns 0 if
// there is more to do, unless the pass failed.
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
