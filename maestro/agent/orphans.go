package agent

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	worklisters "open-cluster-management.io/api/client/work/listers/work/v1"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// orphanInterval is the default of Options.OrphanInterval. It exceeds the time until all works have arrived after a start.
const orphanInterval = 10 * time.Minute

// orphanFinder finds applied objects of works that the server has not sent, for example of works that were deleted after the backup
// that the management cluster was restored from. It reports them to the server, which deletes those that it has a tombstone of.
type orphanFinder struct {
	works             *works
	consumer, hubHash string
	applied           worklisters.AppliedManifestWorkLister
	report            func(ctx context.Context, works []string) error
	interval          time.Duration
	log               *slog.Logger
}

// run checks until ctx ends.
func (s *orphanFinder) run(ctx context.Context) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	before := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		found := s.find()
		// Works that were missing at the previous check too are not in transit.
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
		s.log.WarnContext(ctx, "applied objects of unknown works; reporting them to the server", logkey.Count, len(lasting), logkey.Work, lasting[0])
		if err := s.report(ctx, lasting); err != nil {
			s.log.WarnContext(ctx, "reporting unknown works failed", logkey.Error, err)
		}
	}
}

// find returns the works that have an AppliedManifestWork and that the agent does not have.
func (s *orphanFinder) find() []string {
	all, err := s.applied.List(labels.Everything())
	if err != nil {
		return nil // the cache returns no errors
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
