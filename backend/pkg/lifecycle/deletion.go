package lifecycle

import (
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/inbox"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// overseeDeletion notes which of the backend's own steps of a deletion takes too long, and looks again when the next one
// would. It is asked in every turn of a resource that is being deleted, also before one that fails.
func (k *kind[D]) overseeDeletion(r inbox.Resource, v view, operation *database.OperationDocument, s situation) {
	facts := deletion.Facts{Began: operation.StartTime, Since: s.waiting, Told: k.doom == nil || k.told(r, v.uid),
		Asked: v.fleet.Phase == clusterservice.PhaseDeleting || s.report != nil && s.report.Deleting,
		Gone:  s.report != nil && s.report.Phase == clusterservice.PhaseDeleted}
	facts.Asked = facts.Asked || facts.Gone
	if facts.Gone && facts.Since.IsZero() {
		facts.Since = s.now
	}
	stuck, next := facts.Stuck(s.now)
	if k.metrics.stuckIn(r, stuck) && stuck != "" {
		k.log.Warn("a step of a deletion is stuck", "resourceId", string(r), "operationId", operation.OperationID, "step", stuck,
			"since", operation.StartTime.Format(time.RFC3339))
	}
	if !next.IsZero() {
		k.inbox.Again(r, next.Sub(s.now))
	}
}

// told says whether what is beneath a cluster was told that it goes with it.
func (c *Controller) told(r inbox.Resource, uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doomed[r].uid == uid
}
