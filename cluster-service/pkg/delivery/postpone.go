package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// postponement is the time of the next attempt to store the statuses of a work, and the number of failed attempts.
type postponement struct {
	until    time.Time
	attempts int
}

// postpone delays the next attempt to store the statuses of works, longer with each attempt.
func (r *Receiver) postpone(now time.Time, reports []report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range reports {
		attempts := r.postponed[e.ResourceID].attempts + 1
		r.postponed[e.ResourceID] = postponement{now.Add(backoff.After(attempts, storeRetry, lastStoreRetry)), attempts}
	}
}

// stored removes the postponements of works.
func (r *Receiver) stored(reports []report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range reports {
		delete(r.postponed, e.ResourceID)
	}
}

// applySeparately stores statuses in one transaction if possible. If that fails and the database is available, it stores each half
// separately, so that a cluster that always fails does not delay others. It returns the statuses that could not be stored.
func (r *Receiver) applySeparately(ctx context.Context, reports []report) (left []report, err error) {
	err = r.apply(ctx, reports)
	switch {
	case err == nil:
		r.stored(reports)
		return nil, nil
	case len(reports) == 1, ctx.Err() != nil, store.IsUnavailable(err):
		return reports, err
	}
	half := len(reports) / 2
	left, err = r.applySeparately(ctx, reports[:half])
	if store.IsUnavailable(err) {
		return append(left, reports[half:]...), err
	}
	more, errMore := r.applySeparately(ctx, reports[half:])
	return append(left, more...), errors.Join(err, errMore)
}
