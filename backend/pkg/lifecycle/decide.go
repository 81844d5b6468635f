// Package lifecycle brings every accepted operation to its end. Whenever there is news of a resource it reads the resource
// and its operation, decides what is next, and does that: send the desired state or the deletion to Cluster Service
// (idempotent, and the frontend has usually done so already), write what has become of it, finish the operation together
// with its resource in one transaction, or remove the resource with everything that hangs on it.
//
// Deciding (decide.go) is pure, and the same for clusters, node pools and external auths; so is doing (controller.go), but
// for the few functions that the kind's own file names. Credentials and their revocation are errands (errand.go): asked
// for once, and followed. Every step may be repeated and may be the last before a crash: what is next follows from the
// stored documents and Cluster Service's reports alone.
package lifecycle

import (
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deadline"
)

// Timing is when things are done; the zero value of each means its default.
type Timing struct {
	// Grace is how long the frontend has to send an accepted request to Cluster Service itself; 0 means 500 ms.
	Grace time.Duration
	// Coalesce is how long news that ends no operation is collected before it is written; 0 means 1 s.
	Coalesce time.Duration
	// CreateDeadline and DeleteDeadline end operations that take longer; 0 means those of package deadline. An update has
	// the deadline of a create.
	CreateDeadline, DeleteDeadline time.Duration
}

func (t Timing) complete() Timing {
	for value, fallback := range map[*time.Duration]time.Duration{
		&t.Grace: 500 * time.Millisecond, &t.Coalesce: time.Second, &t.CreateDeadline: deadline.Create, &t.DeleteDeadline: deadline.Delete,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	return t
}

// action is what is next for a resource.
type action int

const (
	// wait for news; what was heard needs no write.
	wait action = iota
	// collect news a while longer, then decide again; it is not dealt with yet.
	collect
	// apply and remove send the desired state, or the deletion, to Cluster Service.
	apply
	remove
	// record writes the resource's status, and the operation if it has moved.
	record
	// finish writes the resource and its operation, which becomes terminal.
	finish
	// purge removes the resource and all that hangs on it; its operation becomes terminal.
	purge
)

// situation is all that a decision is made of.
type situation struct {
	now    time.Time
	timing Timing

	// limits are the resource's own deadlines, before those of timing.
	limits     limits
	generation int64
	state      hub.ProvisioningState
	fleet      database.FleetState
	// operation that is to make the state terminal; nil when none is.
	operation *database.OperationDocument
	// report of this incarnation, nil when none is known. news is set when it changes what the customer can see, and
	// waiting is since when a report has not been dealt with.
	report  *clusterservice.Report
	news    bool
	waiting time.Time
}

// decision is what to do. state and status are the resource's and the operation's next; failure goes with Failed and
// Canceled, and with what is sent for the last time it is what the operation ends with should nobody take that. after, if positive,
// is when to look again.
type decision struct {
	action  action
	state   hub.ProvisioningState
	status  hub.ProvisioningState
	failure *database.OperationError
	after   time.Duration
}

func decide(s situation) decision {
	if s.report != nil && s.report.Phase == clusterservice.PhaseDeleted {
		return decidePurge(s)
	}
	switch {
	case s.operation == nil:
		if s.state == hub.Failed && s.fleet.Phase == clusterservice.PhaseAwaitingSecret && s.report != nil &&
			s.report.Phase == clusterservice.PhaseReady && s.report.ObservedGeneration >= s.generation {
			// The customer took longer than an operation may, but has given the secret after all.
			return s.progress(hub.Succeeded, "")
		}
		return s.progress(s.state, "")
	case s.operation.Request == database.DeleteRequest:
		return decideDelete(s)
	}
	return decideApply(s)
}

// deleting says whether Cluster Service has taken the deletion. A report is never older than what the document says of the
// fleet: if it does not show what the document does, a deletion or a generation, that was lost there, and is sent again.
func (s situation) deleting() bool {
	if s.report != nil {
		return s.report.Deleting || s.report.Phase == clusterservice.PhaseDeleting
	}
	return s.fleet.Phase == clusterservice.PhaseDeleting
}

// decidePurge: Cluster Service has nothing left of the incarnation but a tombstone, whoever asked for that.
func decidePurge(s situation) decision {
	d := decision{action: purge, status: hub.Succeeded}
	if s.operation != nil && s.operation.Request != database.DeleteRequest {
		d.status, d.failure = hub.Canceled, &database.OperationError{Code: "Canceled", Message: "The resource was deleted before the operation was complete."}
	}
	return d
}

func decideDelete(s situation) decision {
	if !s.deleting() {
		return s.send(remove)
	}
	if s.left() <= 0 {
		return s.overdue()
	}
	return s.progress(hub.Deleting, hub.Deleting)
}

func decideApply(s situation) decision {
	target, accepted := s.operation.Generation, s.fleet.AcceptedGeneration
	if s.report != nil {
		accepted = s.report.Generation
	}
	current := s.report != nil && accepted >= target
	switch {
	case s.report != nil && s.report.Deleting:
		return s.fail(database.OperationError{Code: apierror.Conflict.ARMCode(), Message: "The resource is being deleted."})
	case accepted < target:
		return s.send(apply)
	case current && s.report.Phase == clusterservice.PhaseReady && s.report.ObservedGeneration >= target:
		return decision{action: finish, state: hub.Succeeded, status: hub.Succeeded}
	case current && s.report.Phase == clusterservice.PhaseFailed:
		return s.fail(failureOf(s.report))
	case s.left() <= 0 && current && s.report.Phase == clusterservice.PhaseAwaitingSecret:
		return s.fail(database.OperationError{Code: "AwaitingSecret", Message: "The secret of a confidential client was not given within " + s.deadline().String() + ". " + messageOf(s.report, "SecretsPresent")})
	case s.left() <= 0:
		return s.overdue()
	case current && s.report.Phase == clusterservice.PhaseAwaitingSecret && s.report.ObservedGeneration >= target:
		return s.progress(hub.AwaitingSecret, hub.AwaitingSecret)
	case s.report == nil && s.state == hub.AwaitingSecret:
		// So it was when something was last heard of it.
		return s.progress(s.state, s.operation.Status)
	}
	moving := hub.Provisioning
	if s.operation.Request == database.UpdateRequest {
		moving = hub.Updating
	}
	return s.progress(moving, moving)
}

// send leaves the frontend its time first. Once the operation's own time is over it is the last time: an operation always ends, also
// one that Cluster Service has never taken.
func (s situation) send(what action) decision {
	if early := s.operation.StartTime.Add(s.timing.Grace).Sub(s.now); early > 0 {
		return decision{action: collect, after: min(early, s.timing.Grace)}
	}
	if s.left() <= 0 {
		return decision{action: what, failure: s.overdue().failure}
	}
	return decision{action: what}
}

// progress writes what the customer can see, at most once in the time of collecting.
func (s situation) progress(state, status hub.ProvisioningState) decision {
	d := decision{action: wait, state: state, status: status}
	if s.operation != nil {
		d.after = max(s.left(), 0)
	}
	moved := s.report != nil && (s.state != state || s.operation != nil && s.operation.Status != status)
	if s.report == nil || !s.news && !moved {
		return d
	}
	if early := s.waiting.Add(s.timing.Coalesce).Sub(s.now); !s.waiting.IsZero() && early > 0 {
		return decision{action: collect, after: early}
	}
	d.action = record
	return d
}

func (s situation) fail(failure database.OperationError) decision {
	return decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &failure}
}

func (s situation) overdue() decision {
	return s.fail(database.OperationError{
		Code:    "DeadlineExceeded",
		Message: "The operation was not complete within " + s.deadline().String() + ".",
	})
}

func (s situation) deadline() time.Duration {
	switch {
	case s.operation.Request == database.DeleteRequest && s.limits.deletion > 0:
		return s.limits.deletion
	case s.operation.Request == database.DeleteRequest:
		return s.timing.DeleteDeadline
	case s.operation.Request == database.CreateRequest && s.limits.creation > 0:
		return s.limits.creation
	}
	return s.timing.CreateDeadline
}

// left of the operation's time.
func (s situation) left() time.Duration {
	return s.operation.StartTime.Add(s.deadline()).Sub(s.now)
}

// limits are the deadlines that a resource's experimental tags set; 0 leaves one as it is.
type limits struct{ creation, deletion time.Duration }

// limitsOf reads them from the tags of a cluster or a nodepool. The frontend lets only those set them who may.
func limitsOf(tags map[string]string, of string) limits {
	var l limits
	for name, value := range tags {
		for limit, tag := range map[*time.Duration]string{&l.creation: "max-creation-duration", &l.deletion: "max-deletion-duration"} {
			if d, err := time.ParseDuration(value); strings.EqualFold(name, experiment.Prefix+of+"."+tag) && err == nil && d > 0 {
				*limit = d
			}
		}
	}
	return l
}

// failureOf says why Cluster Service gave up: the condition that says so, in its own words.
func failureOf(report *clusterservice.Report) database.OperationError {
	failure := database.OperationError{Code: "ProvisioningFailed", Message: "The resource could not be brought to the requested state."}
	for _, wanted := range []struct{ kind, status string }{
		{"Failed", "True"}, {"Applied", "False"}, {"Valid", "False"}, {"Issued", "False"}, {"SignerClassValid", "False"}, {"Degraded", "True"}, {"Available", "False"},
	} {
		for _, condition := range report.Conditions {
			if condition.Type != wanted.kind || condition.Status != wanted.status || condition.Message == "" {
				continue
			}
			failure.Message = condition.Message
			if condition.Reason != "" {
				failure.Code = condition.Reason
			}
			return failure
		}
	}
	return failure
}

// messageOf is what a report's condition of that type says.
func messageOf(report *clusterservice.Report, condition string) string {
	for _, c := range report.Conditions {
		if c.Type == condition {
			return c.Message
		}
	}
	return ""
}

// refusal is how an operation ends whose request Cluster Service refuses for good; nil when the request should be sent
// again.
func refusal(err error) *database.OperationError {
	e := apierror.As(err)
	switch e.Kind {
	case apierror.Invalid:
	case apierror.FailedPrecondition:
		switch e.Reason {
		case clusterservice.ReasonUIDDeleted, clusterservice.ReasonClusterDeleting:
		default:
			// RESOURCE_ID_IN_USE ends when the earlier incarnation is gone, CLUSTER_UNKNOWN when the cluster was sent.
			return nil
		}
	default:
		return nil
	}
	failure := &database.OperationError{Code: e.Kind.ARMCode(), Message: e.Message, Target: e.Target}
	for _, violation := range e.Violations {
		failure.Details = append(failure.Details, database.OperationError{Code: e.Kind.ARMCode(), Message: violation.Message, Target: violation.Field})
	}
	return failure
}
