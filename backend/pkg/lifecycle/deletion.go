package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// noteInterval is the shortest time between two notes of failures of a stuck step.
	noteInterval = time.Minute
	// maxErrorLength bounds the stored text of a failure, in characters.
	maxErrorLength = 512
)

// deletionState is the state of a running deletion after the last processing of its resource.
type deletionState struct {
	// operation is the key of the ARM operation, or empty if it has already ended.
	operation database.Key
	// stuck is the backend's step that takes too long, or empty.
	stuck string
	// failing is the step at which the last processing failed, if it is known.
	failing string
	// noted is when a failure of the stuck step was last stored.
	noted time.Time
}

// stepError is a failure at a known step of a deletion.
type stepError struct {
	step string
	err  error
}

// Error implements error.
func (e *stepError) Error() string { return e.err.Error() }

// Unwrap returns the failure.
func (e *stepError) Unwrap() error { return e.err }

// withStep adds the step of a deletion to a failure. It returns nil if err is nil.
func withStep(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step, err}
}

// trackDeletion determines which of the backend's own steps of a deletion is stuck, and requeues the resource for when
// the next step would be. It is called whenever a resource that is being deleted is processed, before the execution,
// and also if the operation, which may be nil, has exceeded its deadline. A resource in the state Deleting without an
// operation is deleted with its cluster, whose deletion is tracked.
func (k *kind[D]) trackDeletion(r eventqueue.Resource, v view, operation *database.Item[database.OperationDocument], s decision.Situation) {
	k.mu.Lock()
	before := k.deletions[r]
	k.mu.Unlock()
	_, marked := k.childrenMarked(r, *v.operation)
	facts := deletion.Facts{FleetDeletedTime: s.UnhandledSince,
		FleetAccepted: s.FleetDeleting(),
		FleetDeleted:  s.Report != nil && s.Report.Phase == clusterservice.PhaseDeleted,
		// The first processing marks the children, and the last one ends all other steps. A step that has not failed
		// counts as done.
		ChildrenMarked: k.markChildrenDeleting == nil || before.failing != deletion.StepChildrenMarked || marked,
		BillingEnded:   before.failing != deletion.StepBillingEnded, ChildrenRemoved: before.failing != deletion.StepBillingEnded && before.failing != deletion.StepChildrenRemoved}
	facts.FleetAccepted = facts.FleetAccepted || facts.FleetDeleted
	if s.Report != nil {
		facts.StartTime, facts.FleetAcceptedTime = s.Report.DeleteTime, s.Report.DeleteTime
		facts.Fleet = cmp.Or(s.Report.Deletion, &csv1.Deletion{})
	}
	now, operationID := deletionState{failing: before.failing, noted: before.noted}, ""
	if operation != nil {
		operationID = operation.Value.OperationID
		facts.StartTime, facts.Notes, now.operation = operation.Value.StartTime, operation.Value.DeletionNotes, operation.Key
	}
	if !facts.FleetDeleted {
		facts.FleetDeletedTime = time.Time{}
	}
	if facts.FleetDeleted && facts.FleetDeletedTime.IsZero() {
		facts.FleetDeletedTime = s.Now
	}
	if k.markChildrenDeleting == nil {
		facts.NamePrefix = v.uid // a prefix for the names of the steps, which are not shown here
	}
	stuck, next := facts.StuckStep(s.Now)
	now.stuck = stuck
	k.mu.Lock()
	k.deletions[r] = now
	k.mu.Unlock()
	if k.metrics.setStuckStep(r, stuck) && stuck != "" {
		k.log.Warn("deletion step is stuck", logkey.ResourceID, string(r), logkey.OperationID, operationID, logkey.Step, stuck,
			logkey.Duration, s.Now.Sub(facts.StartTime).Round(time.Second).String())
	}
	if !next.IsZero() {
		k.queue.AddAfter(r, next.Sub(s.Now))
	}
}

// recordDeletionFailure records the step at which a deletion failed. If that step is stuck, it stores the failure on
// the operation, for people who read the deletion. A failure of this write is only logged.
func (c *Controller) recordDeletionFailure(ctx context.Context, r eventqueue.Resource, failure error, attempts int) {
	c.mu.Lock()
	o, known := c.deletions[r]
	atStuckStep := false // whether the failure is at the stuck step
	if known {
		var step *stepError
		o.failing = ""
		if errors.As(failure, &step) {
			o.failing = step.step
		}
		atStuckStep = o.failing == o.stuck || o.failing == "" && o.stuck != deletion.StepChildrenMarked && o.stuck != deletion.StepBillingEnded && o.stuck != deletion.StepChildrenRemoved
		c.deletions[r] = o
	}
	due := atStuckStep && o.stuck != "" && o.operation.ResourceID != "" && time.Since(o.noted) >= noteInterval
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
		c.log.DebugContext(ctx, "storing the failure of a deletion step failed", logkey.ResourceID, string(r), logkey.Error, err)
	}
}

func truncate(text string) string {
	if runes := []rune(text); len(runes) > maxErrorLength {
		return string(runes[:maxErrorLength]) + "…"
	}
	return text
}

// forgetDeletion removes the state of a deletion that has ended or belongs to another replica.
func (c *Controller) forgetDeletion(r eventqueue.Resource) {
	c.mu.Lock()
	delete(c.deletions, r)
	delete(c.cascades, r)
	c.mu.Unlock()
	c.metrics.setStuckStep(r, "")
}
