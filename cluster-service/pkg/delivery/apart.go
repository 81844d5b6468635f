package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// postponement is until when the statuses of a work are left alone, and how long that was.
type postponement struct {
	until time.Time
	pause time.Duration
}

// postpone leaves the statuses of works alone for a while, a longer one each time.
func (r *Receiver) postpone(now time.Time, reports []report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range reports {
		pause := min(max(storeRetry, 2*r.postponed[e.ResourceID].pause), lastStoreRetry)
		r.postponed[e.ResourceID] = postponement{now.Add(pause), pause}
	}
}

// stored forgets that the statuses of works were postponed.
func (r *Receiver) stored(reports []report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range reports {
		delete(r.postponed, e.ResourceID)
	}
}

// applyApart stores statuses, all together if they can be. If they cannot, and not for the database's sake, each half is tried
// by itself, so that an aggregate for which it never goes well holds up no other. It returns those that could not be stored.
func (r *Receiver) applyApart(ctx context.Context, reports []report) (left []report, err error) {
	err = r.apply(ctx, reports)
	switch {
	case err == nil:
		r.stored(reports)
		return nil, nil
	case len(reports) == 1, ctx.Err() != nil, store.IsUnavailable(err):
		return reports, err
	}
	half := len(reports) / 2
	left, err = r.applyApart(ctx, reports[:half])
	if store.IsUnavailable(err) {
		return append(left, reports[half:]...), err
	}
	more, errMore := r.applyApart(ctx, reports[half:])
	return append(left, more...), errors.Join(err, errMore)
}
