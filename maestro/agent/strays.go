package agent

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"
)

// strayPause is how long the cluster may have something applied of a work that the agent does not have before the server is
// asked about it, and how often it is asked. After a start works come for minutes.
const strayPause = 10 * time.Minute

// strays finds what is applied on the cluster for works that the server has sent nothing of: those that were deleted since the
// backup that a cluster was restored from. What there is to know of them is the server's: it is told that the agent has them,
// and has those deleted again whose deletion it remembers.
type strays struct {
	works             *works
	consumer, hubHash string
	applied           worklisters.AppliedManifestWorkLister
	ask               func(ctx context.Context, works []string) error
	pause             time.Duration
	log               *slog.Logger
}

// run looks until the context ends.
func (s *strays) run(ctx context.Context) {
	ticker := time.NewTicker(s.pause)
	defer ticker.Stop()
	before := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		found := s.find()
		// What was there at the last look too is not on its way.
		var lasting []string
		now := map[string]bool{}
		for _, work := range found {
			now[work] = true
			if before[work] {
				lasting = append(lasting, work)
			}
		}
		before = now
		if len(lasting) == 0 {
			continue
		}
		s.log.Warn("the cluster has what was applied for works that the agent does not have; the server is asked about them", "works", len(lasting), "first", lasting[0])
		if err := s.ask(ctx, lasting); err != nil {
			s.log.Warn("the server could not be asked; trying again later", "error", err)
		}
	}
}

// find lists the works that something is applied for and that the agent does not have.
func (s *strays) find() []string {
	all, err := s.applied.List(labels.Everything())
	if err != nil {
		return nil // a cache does not fail
	}
	var found []string
	for _, applied := range all {
		if applied.Spec.AgentID == s.consumer && applied.Spec.HubHash == s.hubHash && applied.DeletionTimestamp.IsZero() &&
			!s.works.has(applied.Spec.ManifestWorkName) {
			found = append(found, applied.Spec.ManifestWorkName)
		}
	}
	return found
}
