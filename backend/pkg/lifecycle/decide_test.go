package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func operation(request database.OperationRequest, generation int64, age time.Duration, status hub.ProvisioningState) *database.OperationDocument {
	return &database.OperationDocument{Request: request, Generation: generation, StartTime: now.Add(-age), Status: status}
}

func report(phase string, generation, observed int64) *clusterservice.Report {
	return &clusterservice.Report{Revision: 10, Phase: phase, Generation: generation, ObservedGeneration: observed}
}

func TestDecide(t *testing.T) {
	deleting := report(clusterservice.PhaseDeleting, 1, 1)
	deleting.Deleting = true
	broken := report(clusterservice.PhaseFailed, 1, 0)
	broken.Conditions = []hub.Condition{
		{Type: "Available", Status: "False", Reason: "NoCapacity", Message: "No shard has room."},
		{Type: "Degraded", Status: "True", Reason: "Broken", Message: "It is broken."},
	}
	awaiting := report(clusterservice.PhaseAwaitingSecret, 1, 1)
	awaiting.Conditions = []hub.Condition{{Type: "SecretsPresent", Status: "False", Message: "The secret a/b is missing."}}
	for name, c := range map[string]struct {
		reason string
		s      situation
		want   decision
	}{
		"create, just accepted": {
			"the frontend sends it itself at first",
			situation{operation: operation(database.CreateRequest, 1, 100*time.Millisecond, hub.Accepted), state: hub.Accepted},
			decision{action: collect, after: 400 * time.Millisecond},
		},
		"create, not in Cluster Service": {
			"the frontend had its time",
			situation{operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), state: hub.Accepted},
			decision{action: apply},
		},
		"create, of a clock that is ahead": {
			"a wait is never longer than the grace",
			situation{operation: operation(database.CreateRequest, 1, -time.Hour, hub.Accepted), state: hub.Accepted},
			decision{action: collect, after: 500 * time.Millisecond},
		},
		"create, installing, first news": {
			"it may be ready before the news is worth a write",
			situation{operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseInstalling, 1, 0), news: true, waiting: now.Add(-300 * time.Millisecond)},
			decision{action: collect, after: 700 * time.Millisecond},
		},
		"create, installing for a while": {
			"the customer sees that it moves",
			situation{operation: operation(database.CreateRequest, 1, 3*time.Second, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseInstalling, 1, 0), waiting: now.Add(-time.Second)},
			decision{action: record, state: hub.Provisioning, status: hub.Provisioning, after: time.Hour - 3*time.Second},
		},
		"create, installing, nothing new": {
			"no write that nobody can see",
			situation{operation: operation(database.CreateRequest, 1, time.Minute, hub.Provisioning), state: hub.Provisioning, report: report(clusterservice.PhaseInstalling, 1, 0), waiting: now.Add(-time.Minute)},
			decision{action: wait, state: hub.Provisioning, status: hub.Provisioning, after: 59 * time.Minute},
		},
		"create, ready": {
			"done, at once",
			situation{operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseReady, 1, 1), news: true, waiting: now},
			decision{action: finish, state: hub.Succeeded, status: hub.Succeeded},
		},
		"create, failed": {
			"Degraded says more than Available",
			situation{operation: operation(database.CreateRequest, 1, time.Second, hub.Provisioning), state: hub.Provisioning, report: broken},
			decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &database.OperationError{Code: "Broken", Message: "It is broken."}},
		},
		"create, overdue": {
			"an operation always ends",
			situation{operation: operation(database.CreateRequest, 1, time.Hour, hub.Provisioning), state: hub.Provisioning, report: report(clusterservice.PhaseInstalling, 1, 0)},
			decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 1h0m0s."}},
		},
		"update, ready with the last generation": {
			"the report is not of this operation: it is not yet in Cluster Service",
			situation{operation: operation(database.UpdateRequest, 2, time.Second, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseReady, 1, 1)},
			decision{action: apply},
		},
		"update, stored, old generation in effect": {
			"the phase is Ready, but of the last generation",
			situation{operation: operation(database.UpdateRequest, 2, time.Minute, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseReady, 2, 1), waiting: now.Add(-time.Minute)},
			decision{action: record, state: hub.Updating, status: hub.Updating, after: 59 * time.Minute},
		},
		"update, failed with the last generation": {
			"the failure is what the update is to repair",
			situation{operation: operation(database.UpdateRequest, 2, time.Second, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseFailed, 1, 0)},
			decision{action: apply},
		},
		"update, accepted before a restart": {
			"the store remembers that Cluster Service has it",
			situation{operation: operation(database.UpdateRequest, 2, time.Minute, hub.Updating), state: hub.Updating, fleet: database.FleetState{AcceptedGeneration: 2}},
			decision{action: wait, state: hub.Updating, status: hub.Updating, after: 59 * time.Minute},
		},
		"update, lost by the fleet": {
			"what is heard now counts, not what the store remembers",
			situation{operation: operation(database.UpdateRequest, 2, time.Minute, hub.Updating), state: hub.Updating, fleet: database.FleetState{AcceptedGeneration: 2}, report: report(clusterservice.PhaseReady, 1, 1)},
			decision{action: apply},
		},
		"update, being deleted in the fleet": {
			"somebody deleted it behind ARM's back",
			situation{operation: operation(database.UpdateRequest, 2, time.Second, hub.Updating), state: hub.Updating, report: deleting},
			decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &database.OperationError{Code: "Conflict", Message: "The resource is being deleted."}},
		},
		"delete, not in Cluster Service": {
			"the frontend had its time",
			situation{operation: operation(database.DeleteRequest, 1, time.Second, hub.Deleting), state: hub.Deleting, report: report(clusterservice.PhaseReady, 1, 1)},
			decision{action: remove},
		},
		"delete, lost by the fleet": {
			"what is heard now counts, not what the store remembers",
			situation{operation: operation(database.DeleteRequest, 1, time.Minute, hub.Deleting), state: hub.Deleting, fleet: database.FleetState{Phase: clusterservice.PhaseDeleting}, report: report(clusterservice.PhaseReady, 1, 1)},
			decision{action: remove},
		},
		"create, never taken": {
			"an operation always ends: it is sent for the last time",
			situation{operation: operation(database.CreateRequest, 1, time.Hour, hub.Accepted), state: hub.Accepted},
			decision{action: apply, failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 1h0m0s."}},
		},
		"delete, never taken": {
			"an operation always ends: it is sent for the last time",
			situation{operation: operation(database.DeleteRequest, 1, 12*time.Hour, hub.Deleting), state: hub.Deleting, report: report(clusterservice.PhaseReady, 1, 1)},
			decision{action: remove, failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 12h0m0s."}},
		},
		"delete, under way": {
			"nothing to see",
			situation{operation: operation(database.DeleteRequest, 1, time.Hour, hub.Deleting), state: hub.Deleting, report: deleting},
			decision{action: wait, state: hub.Deleting, status: hub.Deleting, after: 11 * time.Hour},
		},
		"delete, overdue": {
			"an operation always ends",
			situation{operation: operation(database.DeleteRequest, 1, 12*time.Hour, hub.Deleting), state: hub.Deleting, report: deleting},
			decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 12h0m0s."}},
		},
		"delete, deleted": {
			"all of it goes",
			situation{operation: operation(database.DeleteRequest, 1, time.Second, hub.Deleting), state: hub.Deleting, report: report(clusterservice.PhaseDeleted, 1, 1)},
			decision{action: purge, status: hub.Succeeded},
		},
		"create, deleted": {
			"what is no more cannot come to be",
			situation{operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseDeleted, 1, 0)},
			decision{action: purge, status: hub.Canceled, failure: &database.OperationError{Code: "Canceled", Message: "The resource was deleted before the operation was complete."}},
		},
		"no operation, deleted": {
			"a node pool goes with its cluster, with no operation of its own",
			situation{state: hub.Deleting, report: report(clusterservice.PhaseDeleted, 1, 1)},
			decision{action: purge, status: hub.Succeeded},
		},
		"create, over the limit of its tags": {
			"the customer wanted to know earlier",
			situation{operation: operation(database.CreateRequest, 1, 2*time.Minute, hub.Provisioning), state: hub.Provisioning, report: report(clusterservice.PhaseInstalling, 1, 0), limits: limits{creation: 90 * time.Second}},
			decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 1m30s."}},
		},
		"update, over the limit of creation": {
			"that is for the creation alone",
			situation{operation: operation(database.UpdateRequest, 2, 2*time.Minute, hub.Updating), state: hub.Updating, report: report(clusterservice.PhaseUpdating, 2, 1), limits: limits{creation: 90 * time.Second}},
			decision{action: wait, state: hub.Updating, status: hub.Updating, after: 58 * time.Minute},
		},
		"delete, over the limit of its tags": {
			"the customer wanted to know earlier",
			situation{operation: operation(database.DeleteRequest, 1, 2*time.Minute, hub.Deleting), state: hub.Deleting, report: deleting, limits: limits{deletion: time.Minute}},
			decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 1m0s."}},
		},
		"external auth, without its secret": {
			"the customer is to give it",
			situation{operation: operation(database.CreateRequest, 1, time.Minute, hub.Accepted), state: hub.Accepted, report: report(clusterservice.PhaseAwaitingSecret, 1, 1), news: true},
			decision{action: record, state: hub.AwaitingSecret, status: hub.AwaitingSecret, after: 59 * time.Minute},
		},
		"external auth, after a restart": {
			"what was last heard still holds",
			situation{operation: operation(database.CreateRequest, 1, time.Minute, hub.AwaitingSecret), state: hub.AwaitingSecret, fleet: database.FleetState{AcceptedGeneration: 1, Phase: clusterservice.PhaseAwaitingSecret}},
			decision{action: wait, state: hub.AwaitingSecret, status: hub.AwaitingSecret, after: 59 * time.Minute},
		},
		"external auth, secret never given": {
			"an operation always ends",
			situation{operation: operation(database.CreateRequest, 1, time.Hour, hub.AwaitingSecret), state: hub.AwaitingSecret, report: awaiting},
			decision{action: finish, state: hub.Failed, status: hub.Failed, failure: &database.OperationError{Code: "AwaitingSecret", Message: "The secret of a confidential client was not given within 1h0m0s. The secret a/b is missing."}},
		},
		"external auth, secret given late": {
			"it works, so it is not failed any more",
			situation{generation: 1, state: hub.Failed, fleet: database.FleetState{AcceptedGeneration: 1, Phase: clusterservice.PhaseAwaitingSecret}, report: report(clusterservice.PhaseReady, 1, 1)},
			decision{action: record, state: hub.Succeeded},
		},
		"no operation, news": {
			"the customer sees how the cluster fares",
			situation{state: hub.Succeeded, report: report(clusterservice.PhaseReady, 1, 1), news: true, waiting: now.Add(-time.Second)},
			decision{action: record, state: hub.Succeeded},
		},
		"no operation, nothing new": {
			"no write that nobody can see",
			situation{state: hub.Succeeded, report: report(clusterservice.PhaseReady, 1, 1), waiting: now.Add(-time.Second)},
			decision{action: wait, state: hub.Succeeded},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.now, c.s.timing = now, Timing{}.complete()
			got := decide(c.s)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(decision{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		err    error
		want   *database.OperationError
	}{
		"a wrong field": {
			"every field is named",
			apierror.InvalidFields([]apierror.Violation{{Field: "spec.a", Message: "Required value"}, {Field: "spec.b", Message: "Required value"}}),
			&database.OperationError{Code: "InvalidRequestContent", Message: "Required value", Target: "spec.a", Details: []database.OperationError{
				{Code: "InvalidRequestContent", Message: "Required value", Target: "spec.a"}, {Code: "InvalidRequestContent", Message: "Required value", Target: "spec.b"},
			}},
		},
		"the uid is deleted": {
			"it will never come back",
			apierror.New(apierror.FailedPrecondition, "The uid was deleted.").WithReason(clusterservice.ReasonUIDDeleted),
			&database.OperationError{Code: "Conflict", Message: "The uid was deleted."},
		},
		"the last incarnation is still there": {"it will not be for long", apierror.New(apierror.FailedPrecondition, "in use").WithReason(clusterservice.ReasonResourceIDInUse), nil},
		"the cluster is not there yet":        {"it is sent on its own", apierror.New(apierror.FailedPrecondition, "unknown").WithReason(clusterservice.ReasonClusterUnknown), nil},
		"nobody answers":                      {"somebody will", apierror.New(apierror.Unavailable, "no"), nil},
		"a fault of the service":              {"it may pass", apierror.New(apierror.Internal, "no"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, refusal(c.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestLimitsOf(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		tags   map[string]string
		of     string
		want   limits
	}{
		"both":         {"as they are written", map[string]string{"aro-hcp.experimental.cluster.max-creation-duration": "90m", "aro-hcp.experimental.cluster.max-deletion-duration": "2h"}, "cluster", limits{90 * time.Minute, 2 * time.Hour}},
		"any casing":   {"ARM's tag names have none", map[string]string{"ARO-HCP.Experimental.Nodepool.Max-Creation-Duration": "1h"}, "nodepool", limits{creation: time.Hour}},
		"another kind": {"is none of its business", map[string]string{"aro-hcp.experimental.cluster.max-creation-duration": "90m"}, "nodepool", limits{}},
		"nonsense":     {"leaves it as it is", map[string]string{"aro-hcp.experimental.cluster.max-creation-duration": "-1h", "a": "1h"}, "cluster", limits{}},
		"no tags":      {"leaves it as it is", nil, "cluster", limits{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := limitsOf(c.tags, c.of); got != c.want {
				t.Errorf("%+v, want %+v: %s", got, c.want, c.reason)
			}
		})
	}
}
