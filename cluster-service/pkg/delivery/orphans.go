package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
)

// withoutOwner decides on what Maestro holds for us and no row is for: the leftovers of forced deletions, what is left of
// something that has ended, and what the fleet has never had.
func (r *Receiver) withoutOwner(ctx context.Context, reports []report) error {
	if len(reports) == 0 {
		return nil
	}
	var ids, clusterIDs []string
	for _, e := range reports {
		ids = append(ids, e.ResourceID)
		if id := fleet.ClusterIDOf(e.Name); id != "" && !e.seen.Deleted {
			clusterIDs = append(clusterIDs, id)
		}
	}
	leftovers, err := r.Store.Leftovers(ctx, ids)
	if err != nil {
		return err
	}
	clusters, err := r.Store.ClustersByID(ctx, clusterIDs)
	if err != nil {
		return err
	}
	for _, e := range reports {
		switch leftover := leftovers[e.ResourceID]; {
		case e.seen.Deleted && leftover != nil:
			if err := r.leftoverGone(ctx, leftover); err != nil {
				return err
			}
		case e.seen.Deleted:
			r.strays.gone(e.ResourceID)
			r.Metrics.statuses.WithLabelValues("unchanged").Inc()
		case leftover != nil:
			r.deleteOrphan(ctx, e, leftover)
		default:
			ended, err := r.ended(ctx, e, clusters[fleet.ClusterIDOf(e.Name)])
			if err != nil {
				return err
			}
			if !ended {
				r.Metrics.statuses.WithLabelValues("unknown").Inc()
				r.strays.seen(e.Event, r.Store.Now())
				continue
			}
			r.strays.gone(e.ResourceID)
			r.deleteOrphan(ctx, e, nil)
		}
	}
	return nil
}

// ended says whether a work is what is left of something that is deleted, of a cluster that may be unknown.
func (r *Receiver) ended(ctx context.Context, e report, clusterUID string) (bool, error) {
	if clusterUID == "" {
		return false, nil
	}
	t, err := r.Store.Read(ctx, clusterUID)
	if err != nil {
		return false, err
	}
	return t.Ended(e.Consumer, e.ResourceID, e.Name), nil
}

// deleteOrphan has Maestro delete what nobody misses: the late effect of a publish that was given up, or what was left behind
// by a deletion that was forced.
func (r *Receiver) deleteOrphan(ctx context.Context, e report, leftover *fleet.Leftover) {
	r.Metrics.statuses.WithLabelValues("orphan").Inc()
	bundle := &maestro.Bundle{ID: e.ResourceID, Name: e.ResourceID, Consumer: e.Consumer}
	if leftover != nil {
		bundle.ReleaseFinalizers = leftover.Release
	}
	if err := r.Maestro.Delete(ctx, bundle); err != nil {
		slog.Warn("an orphan could not be deleted; it will be found again", "maestro_id", e.ResourceID, "consumer", e.Consumer, "error", err)
		return
	}
	if leftover != nil {
		return
	}
	r.Metrics.orphans.Inc()
	slog.Info("deleted a work without an owner", "maestro_id", e.ResourceID, "consumer", e.Consumer)
}

// leftoverGone notes the end of what a forced deletion had left behind.
func (r *Receiver) leftoverGone(ctx context.Context, l *fleet.Leftover) error {
	r.Metrics.statuses.WithLabelValues("deleted").Inc()
	if !l.GoneTime.IsZero() {
		return nil
	}
	if err := r.Store.LeftoverGone(ctx, l.WorkID); err != nil {
		return err
	}
	slog.Info("what a forced deletion had left behind is gone", "cluster_uid", l.ClusterUID, "work", l.Work, "maestro_id", l.WorkID, "step", l.Step)
	return nil
}

// maxStrays bounds the works that are remembered as unknown.
const maxStrays = 100_000

// strays are works of ours at Maestro that the fleet has never had, as far as its database knows. They are left alone: after the
// database was restored to an earlier state they are customers' clusters. An SRE decides on them.
type strays struct {
	metrics *Metrics

	mu   sync.Mutex
	last map[string]time.Time
}

func newStrays(metrics *Metrics) *strays {
	return &strays{metrics: metrics, last: map[string]time.Time{}}
}

// seen notes that a work was reported, and says so in the log the first time.
func (s *strays) seen(e *maestro.Event, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.last[e.ResourceID]; !known {
		if len(s.last) >= maxStrays {
			return
		}
		slog.Error("Maestro has a work of this service that the fleet has never had; it is left alone", "maestro_id", e.ResourceID, "work", e.Name,
			"consumer", e.Consumer)
	}
	s.last[e.ResourceID] = now
	s.metrics.unknown.Set(float64(len(s.last)))
}

// gone forgets a work that is none, or no longer there.
func (s *strays) gone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, id)
	s.metrics.unknown.Set(float64(len(s.last)))
}

// forget forgets the works that were not reported since: somebody owns them again, or they are gone.
func (s *strays) forget(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, last := range s.last {
		if last.Before(since) {
			delete(s.last, id)
		}
	}
	s.metrics.unknown.Set(float64(len(s.last)))
}
