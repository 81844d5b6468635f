// Package decision decides what the backend does next for a resource. It is pure: the decision follows from a
// Situation, which holds the stored documents, the newest report of Cluster Service and the time. Clusters, node pools
// and external authentications share Decide; credentials and revocations share DecideOneShot. Package lifecycle
// executes the decisions.
package decision

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/customererror"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Timing configures when the backend acts. A zero value means the default.
type Timing struct {
	// Grace is how long the frontend has to send an accepted request to Cluster Service itself; 0 means 500 ms.
	Grace time.Duration
	// Coalesce is the shortest time between two writes of a resource's progress; 0 means 1 s.
	Coalesce time.Duration
	// CreateDeadline and DeleteDeadline end operations that take longer; 0 means the defaults of package asyncoperation. An
	// update has the deadline of a create.
	CreateDeadline, DeleteDeadline time.Duration
}

// WithDefaults returns t with defaults for zero values.\
func (t Timing) WithDefaults() Timing {
	for value, byDefault := range map[*time.Duration]time.Duration{
		&t.Grace: 500 * time.Millisecond, &t.Coalesce: time.Second, &t.CreateDeadline: asyncoperation.CreateDeadline, &t.DeleteDeadline: asyncoperation.DeleteDeadline,
	} {
		if *value == 0 {
			*value = byDefault
		}
	}
	return t
}

// Action is the next action for a resource.
type Action int

const (
	// Wait for the next event; nothing has to be written.
	Wait Action = iota
	// Collect further reports until After has passed, and then decide again. The report is not acknowledged.
	Collect
	// Apply and Remove send the desired state or the deletion to Cluster Service.
	Apply
	Remove
	// Record writes the resource's status, and the operation's if it has changed.
	Record
	// Finish writes the resource and its operation, which becomes terminal.
	Finish
	// Purge removes the resource and its dependents; its operation becomes terminal.
	Purge
)

// Situation is the input of a decision.
type Situation struct {
	Now    time.Time
	Timing Timing

	// Limits are the resource's own deadlines. They take precedence over those of Timing.
	Limits     Limits
	Generation int64
	State      hub.ProvisioningState
	Fleet      database.FleetState
	// Operation that will make State terminal, or nil.
	Operation *database.OperationDocument
	// Report of this incarnation, or nil. StatusChanged is set if the report changes what the customer sees.
	// UnhandledSince is the arrival of the oldest report that was not acknowledged.
	Report         *clusterservice.Report
	StatusChanged  bool
	UnhandledSince time.Time
}

// Decision is the next action. State and Status are the next states of the resource and the operation. Failure is the
// error of a Failed or Canceled operation; with Apply or Remove it is the error to use if this last attempt fails.
// After is when to decide again, if it is positive.
type Decision struct {
	Action  Action
	State   hub.ProvisioningState
	Status  hub.ProvisioningState
	Failure *database.OperationError
	After   time.Duration
}

// Decide returns the next action for a cluster, a node pool or an external authentication.\
func Decide(s Situation) Decision {
	if s.Report != nil && s.Report.Phase == clusterservice.PhaseDeleted {
		return decidePurge(s)
	}
	switch {
	case s.Operation == nil && s.lost():
		// Without the customer's data, the cluster must not be shown as Succeeded.
		return s.progress(hub.Failed, "")
	case s.Operation == nil && s.State == hub.Failed && s.Fleet.Phase == clusterservice.PhaseLost && s.Report != nil &&
		s.Report.Phase == clusterservice.PhaseReady && s.Report.ObservedGeneration >= s.Generation:
		// An SRE has accepted the new control plane, or the removed one exists again.
		return s.progress(hub.Succeeded, "")
	case s.Operation == nil:
		if s.State == hub.Failed && s.Fleet.Phase == clusterservice.PhaseAwaitingSecret && s.Report != nil &&
			s.Report.Phase == clusterservice.PhaseReady && s.Report.ObservedGeneration >= s.Generation {
			// The customer has provided the secret after the deadline of the operation.
			return s.progress(hub.Succeeded, "")
		}
		return s.progress(s.State, "")
	case s.Operation.Request == database.DeleteRequest:
		return decideDelete(s)
	}
	return decideApply(s)
}

// DecideOneShot returns the next action for a one-shot operation. outcomes maps the phases of reports that end the
// operation to the operation's status; other phases are intermediate. It is pure.
func DecideOneShot(s Situation, outcomes map[string]hub.ProvisioningState) Decision {
	if s.Report != nil {
		if status, ok := outcomes[s.Report.Phase]; ok {
			d := Decision{Action: Finish, Status: status}
			switch status {
			case hub.Failed:
				d.Failure = customererror.FromReport(s.Report)
			case hub.Canceled:
				d.Failure = customererror.Canceled("The request was canceled before it was complete.")
			}
			return d
		}
	}
	switch remaining := s.remaining(); {
	case remaining <= 0:
		return s.overdue()
	case s.Report != nil:
		return Decision{Action: Wait, After: remaining}
	}
	return s.send(Apply)
}

// lost reports whether the control plane of the cluster was removed and no SRE has decided how the cluster continues.
func (s Situation) lost() bool {
	return s.Report != nil && s.Report.Phase == clusterservice.PhaseLost && !s.Report.Deleting
}

// FleetDeleting reports whether Cluster Service has accepted the deletion. A report is never older than the fleet state
// in the document. If the document shows a deletion or a generation that the report does not show, Cluster Service has
// lost it and it is sent again.
func (s Situation) FleetDeleting() bool {
	if s.Report != nil {
		return s.Report.Deleting || s.Report.Phase == clusterservice.PhaseDeleting
	}
	return s.Fleet.Phase == clusterservice.PhaseDeleting
}

// decidePurge decides for a resource of which Cluster Service only has a tombstone, whoever requested the deletion.
func decidePurge(s Situation) Decision {
	d := Decision{Action: Purge, Status: hub.Succeeded}
	if s.Operation != nil && s.Operation.Request != database.DeleteRequest {
		d.Status, d.Failure = hub.Canceled, customererror.Canceled("The resource was deleted before the operation was complete.")
	}
	return d
}

func decideDelete(s Situation) Decision {
	if !s.FleetDeleting() {
		return s.send(Remove)
	}
	if s.remaining() <= 0 {
		return s.overdue()
	}
	return s.progress(hub.Deleting, hub.Deleting)
}

func decideApply(s Situation) Decision {
	target, accepted := s.Operation.Generation, s.Fleet.AcceptedGeneration
	if s.Report != nil {
		accepted = s.Report.Generation
	}
	current := s.Report != nil && accepted >= target
	switch {
	case s.Report != nil && s.Report.Deleting:
		return s.fail(customererror.Deleting())
	case accepted < target:
		return s.send(Apply)
	case current && s.Report.Phase == clusterservice.PhaseReady && s.Report.ObservedGeneration >= target:
		return Decision{Action: Finish, State: hub.Succeeded, Status: hub.Succeeded}
	case current && s.lost():
		return s.fail(customererror.ControlPlaneLost(s.Report))
	case current && s.Report.Phase == clusterservice.PhaseFailed:
		return s.fail(customererror.FromReport(s.Report))
	case s.remaining() <= 0 && current && s.Report.Phase == clusterservice.PhaseAwaitingSecret:
		return s.fail(customererror.AwaitingSecret(s.deadline(), s.Report.AwaitedSecrets))
	case s.remaining() <= 0 && current:
		if missing := customererror.MissingIdentities(s.deadline(), s.Report); missing != nil {
			return s.fail(missing)
		}
		if full := customererror.FullIdentities(s.deadline(), s.Report); full != nil {
			return s.fail(full)
		}
		if unusable := customererror.UnusableKey(s.deadline(), s.Report); unusable != nil {
			return s.fail(unusable)
		}
		if unmet := customererror.UnmetRequirements(s.deadline(), s.Report); unmet != nil {
			return s.fail(unmet)
		}
		return s.overdue()
	case s.remaining() <= 0:
		return s.overdue()
	case current && s.Report.Phase == clusterservice.PhaseAwaitingSecret && s.Report.ObservedGeneration >= target:
		return s.progress(hub.AwaitingSecret, hub.AwaitingSecret)
	case s.Report == nil && s.State == hub.AwaitingSecret:
		// Without a report the last known state still holds.
		return s.progress(s.State, s.Operation.Status)
	}
	moving := hub.Provisioning
	if s.Operation.Request == database.UpdateRequest {
		moving = hub.Updating
	}
	return s.progress(moving, moving)
}

// send returns action, or Collect during the frontend's grace period. After the operation's deadline it is the last
// attempt: every operation ends, even if Cluster Service never accepts it.
func (s Situation) send(action Action) Decision {
	if early := s.Operation.StartTime.Add(s.Timing.Grace).Sub(s.Now); early > 0 {
		return Decision{Action: Collect, After: min(early, s.Timing.Grace)}
	}
	if s.remaining() <= 0 {
		return Decision{Action: action, Failure: s.overdue().Failure}
	}
	return Decision{Action: action}
}

// progress returns a decision to write a change that the customer sees, at most once per Timing.Coalesce.
func (s Situation) progress(state, status hub.ProvisioningState) Decision {
	d := Decision{Action: Wait, State: state, Status: status}
	if s.Operation != nil {
		d.After = max(s.remaining(), 0)
	}
	moved := s.Report != nil && (s.State != state || s.Operation != nil && s.Operation.Status != status)
	if s.Report == nil || !s.StatusChanged && !moved {
		return d
	}
	if early := s.UnhandledSince.Add(s.Timing.Coalesce).Sub(s.Now); !s.UnhandledSince.IsZero() && early > 0 {
		return Decision{Action: Collect, After: early}
	}
	d.Action = Record
	return d
}

func (s Situation) fail(failure *database.OperationError) Decision {
	return Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: failure}
}

func (s Situation) overdue() Decision {
	return s.fail(customererror.DeadlineExceeded(s.deadline(), s.Report))
}

func (s Situation) deadline() time.Duration {
	switch {
	case s.Operation.Request == database.DeleteRequest && s.Limits.Deletion > 0:
		return s.Limits.Deletion
	case s.Operation.Request == database.DeleteRequest:
		return s.Timing.DeleteDeadline
	case s.Operation.Request == database.CreateRequest && s.Limits.Creation > 0:
		return s.Limits.Creation
	}
	return s.Timing.CreateDeadline
}

// remaining returns the time until the operation's deadline.
func (s Situation) remaining() time.Duration {
	return s.Operation.StartTime.Add(s.deadline()).Sub(s.Now)
}

// Limits are deadlines from experimental tags of a resource; 0 means not set.
type Limits struct{ Creation, Deletion time.Duration }

// LimitsFromExperiments reads the limits from the experimental tags in effect for a cluster or a node pool.
func LimitsFromExperiments(inEffect map[string]string) Limits {
	creation, deletion := experiment.Deadlines(inEffect)
	return Limits{Creation: creation, Deletion: deletion}
}
