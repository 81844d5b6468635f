// Package pass has the workers that run the state machine of clusters when a time has come. A worker makes a pass over clusters at that
// time, when something changed, and at an interval in case it missed either.
//
// A Placer places clusters that had no provision shard when they were created. An Upgrader starts upgrades: those of upgrade policies, and
// those that were scheduled for a time. A Renewer publishes new renderings of clusters whose renderer has changed. An Expirer ends
// credentials whose time has passed: issued ones expire, and ones that are signed too late fail. A DeletionMonitor finds deletions that are
// stuck, and deletes what forced deletions left behind. A Resealer seals the signing keys of clusters again after the primary key of the
// sealing keyset has changed, so that the former key can be removed.
//
// A Queue processes the clusters that have due rows in the database. A row stores what is due and when, so nothing depends on
// memory alone. The Queue receives clusters whose lease this process acquired, and visits each of them with one worker at a
// time. It also scans the database for due rows without a lease: retries, and rows whose lease expired because their process
// died.
package pass

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// retryPause is the minimum pause before the next pass over clusters when one of them failed.
const retryPause = 5 * time.Second

// pageSize is the number of clusters that a worker reads from the database at a time.
const pageSize = 100

// Signal requests a pass. Requests that arrive before a pass starts are one request.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set requests a pass soon. It does not block.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Repeat makes passes until ctx ends. The next pass starts after the pause that pass returns, or when signal is set. signal may
// be nil.
func Repeat(ctx context.Context, signal Signal, pass func(context.Context) (pause time.Duration)) {
	for {
		pause := time.NewTimer(pass(ctx))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-signal:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// EachCluster calls do for clusters, one after the other. A failure does not stop the others, unless the database is unavailable.
func EachCluster(ctx context.Context, clusterUIDs []string, do func(clusterUID string) error) error {
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

// UntilNext returns the pause before the next pass: until next, where zero means unknown, and at most interval. It returns 0 if
// there is more to do, unless the pass failed.
func UntilNext(now, next time.Time, interval time.Duration, more bool, err error) time.Duration {
	wait := interval
	switch {
	case more:
		wait = 0
	case !next.IsZero():
		wait = max(0, min(next.Sub(now), interval))
	}
	if err != nil {
		wait = max(wait, min(retryPause, interval))
	}
	return wait
}
