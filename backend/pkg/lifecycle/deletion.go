package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

const (
	// noteInterval is how long it takes at least until the failures of a stuck step are noted again.
	noteInterval = time.Minute
	// maxErrorLength bounds the text of a failure that is noted.
	maxErrorLength = 512
)

// deletionState is a deletion under way, as the last turn of its resource found it.
type deletionState struct {
	// operation is the key of ARM's; empty when that has ended before.
	operation database.Key
	// stuck is the backend's own step that takes too long, empty for none.
	stuck string
	// failing is at which of the steps that are taken within a turn the last one that failed did, if at one of these.
	failing string
	// noted is when failures of the stuck step were last noted.
	noted time.Time
}

// stepError is a failure at one of the steps that are taken within a turn.
type stepError struct {
	step string
	err  error
}

// Error implements error.
func (e *stepError) Error() string { return e.err.Error() }

// Unwrap gives the failure.
func (e *stepError) Unwrap() error { return e.err }

// withStep says at which step of a deletion something failed; nil stays nil.
func withStep(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step, err}
}

// trackDeletion notes which of the backend's own steps of a deletion takes too long, and looks again when the next one
// would. It is asked in every turn of a resource that is being deleted, also before one that fails, and also when the
// operation, which may be nil, has ended of old age before. What shows that it is being deleted and has no operation goes with
// its cluster, whose own deletion is looked after.
func (k *kind[D]) trackDeletion(r eventqueue.Resource, v view, operation *database.Item[database.OperationDocument], s situation) {
	k.mu.Lock()
	before := k.deletions[r]
	k.mu.Unlock()
	_, told := k.childrenMarked(r, *v.operation)
	facts := deletion.Facts{FleetDeletedTime: s.waiting,
		FleetAccepted: s.deleting(),
		FleetDeleted:  s.report != nil && s.report.Phase == clusterservice.PhaseDeleted,
		// What is beneath is told in the first turn, and at the end all goes in one: what has not failed is as good as done.
		ChildrenMarked: k.markChildrenDeleting == nil || before.failing != deletion.StepChildrenMarked || told,
		BillingEnded:   before.failing != deletion.StepBillingEnded, ChildrenRemoved: before.failing != deletion.StepBillingEnded && before.failing != deletion.StepChildrenRemoved}
	facts.FleetAccepted = facts.FleetAccepted || facts.FleetDeleted
	if s.report != nil {
		facts.StartTime, facts.FleetAcceptedTime = s.report.DeleteTime, s.report.DeleteTime
		facts.Fleet = cmp.Or(s.report.Deletion, &csv1.Deletion{})
	}
	now := deletionState{failing: before.failing, noted: before.noted}
	if operation != nil {
		facts.StartTime, facts.Notes, now.operation = operation.Value.StartTime, operation.Value.DeletionNotes, operation.Key
	}
	if !facts.FleetDeleted {
		facts.FleetDeletedTime = time.Time{}
	}
	if facts.FleetDeleted && facts.FleetDeletedTime.IsZero() {
		facts.FleetDeletedTime = s.now
	}
	if k.markChildrenDeleting == nil {
		facts.NamePrefix = v.uid // a part of a cluster, whatever it is called
	}
	stuck, next := facts.StuckStep(s.now)
	now.stuck = stuck
	k.mu.Lock()
	k.deletions[r] = now
	k.mu.Unlock()
	if k.metrics.setStuckStep(r, stuck) && stuck != "" {
		k.log.Warn("a step of a deletion is stuck", "resourceId", string(r), "operationId", now.operation.ResourceID, "step", stuck,
			"since", facts.StartTime.Format(time.RFC3339))
	}
	if !next.IsZero() {
		k.queue.AddAfter(r, next.Sub(s.now))
	}
}

// recordDeletionFailure keeps at which step a deletion failed and, once that is stuck, notes the failure on the operation, so that whoever
// looks at the deletion sees it. That this fails as well is no other failure.
func (c *Controller) recordDeletionFailure(ctx context.Context, r eventqueue.Resource, failure error, attempts int) {
	c.mu.Lock()
	o, known := c.deletions[r]
	ours := false // whether it failed at the step that is stuck, and not at another that this turn came to
	if known {
		var step *stepError
		o.failing = ""
		if errors.As(failure, &step) {
			o.failing = step.step
		}
		ours = o.failing == o.stuck || o.failing == "" && o.stuck != deletion.StepChildrenMarked && o.stuck != deletion.StepBillingEnded && o.stuck != deletion.StepChildrenRemoved
		c.deletions[r] = o
	}
	due := ours && o.stuck != "" && o.operation.ResourceID != "" && time.Since(o.noted) >= noteInterval
	if due {
		o.noted = time.Now()
		c.deletions[r] = o
	}
	c.mu.Unlock()
	if !due {
		return
	}
	err := database.Retry(ctx, func(ctx context.Context) error {
		item, err := c.db.Operations().Find(ctx, o.operation)
		if err != nil || item == nil || item.Removed != nil || item.Value.Status.Terminal() {
			return err
		}
		note := item.Value.DeletionNote(o.stuck)
		note.Attempts, note.LastError = int32(attempts), truncate(failure.Error())
		batch := c.db.NewBatch(item.Key.SubscriptionID)
		database.Replace(batch, item)
		return batch.Commit(ctx)
	})
	if err != nil {
		c.log.DebugContext(ctx, "the failure of a step of a deletion could not be noted", "resourceId", string(r), "error", err)
	}
}

func truncate(text string) string {
	if runes := []rune(text); len(runes) > maxErrorLength {
		return string(runes[:maxErrorLength]) + "…"
	}
	return text
}

// forgetDeletion forgets a deletion that has ended, or is another replica's now.
func (c *Controller) forgetDeletion(r eventqueue.Resource) {
	c.mu.Lock()
	delete(c.deletions, r)
	delete(c.cascades, r)
	c.mu.Unlock()
	c.metrics.setStuckStep(r, "")
}
