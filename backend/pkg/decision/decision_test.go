package decision

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/customererror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
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
	lost := report(clusterservice.PhaseLost, 1, 1)
	lost.Conditions = []hub.Condition{{Type: "Applied", Status: "False", Message: "Not yet."}, {Type: "Available", Status: "False", Reason: "ControlPlaneReplaced", Message: "It was rebuilt without its data."}}
	withoutIdentity := report(clusterservice.PhaseInstalling, 1, 0)
	withoutIdentity.Conditions = []hub.Condition{{Type: clusterstatus.IdentitiesRead, Status: "False", Message: "properties.platform.operatorsAuthentication.userAssignedIdentities.serviceManagedIdentity"}}
	withoutQuota := report(clusterservice.PhaseInstalling, 1, 0)
	withoutQuota.Conditions = []hub.Condition{{Type: clusterstatus.RequirementsValid, Status: "False", Message: "properties.platform.vmSize: 3 nodes need 24 cores."}}
	fullIdentity := report(clusterservice.PhaseInstalling, 1, 0)
	fullIdentity.Conditions = []hub.Condition{{Type: clusterstatus.IdentitiesFederated, Status: "False", Message: "properties.platform.operatorsAuthentication.userAssignedIdentities.dataPlaneOperators[image-registry]"}}
	withoutKey := report(clusterservice.PhaseInstalling, 1, 0)
	withoutKey.Conditions = []hub.Condition{{Type: clusterstatus.EncryptionKeyUsable, Status: "False", Reason: clusterstatus.EncryptionKeyInvalid}}
	awaiting := report(clusterservice.PhaseAwaitingSecret, 1, 1)
	awaiting.AwaitedSecrets = []string{"a/b"}
	for name, c := range map[string]struct {
		reason string
		s      Situation
		want   Decision
	}{
		"create, just accepted": {
			"the frontend sends the request itself first",
			Situation{Operation: operation(database.CreateRequest, 1, 100*time.Millisecond, hub.Accepted), State: hub.Accepted},
			Decision{Action: Collect, After: 400 * time.Millisecond},
		},
		"create, not in Cluster Service": {
			"the grace period has ended",
			Situation{Operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), State: hub.Accepted},
			Decision{Action: Apply},
		},
		"create, clock of the frontend ahead": {
			"a pause is never longer than the grace period",
			Situation{Operation: operation(database.CreateRequest, 1, -time.Hour, hub.Accepted), State: hub.Accepted},
			Decision{Action: Collect, After: 500 * time.Millisecond},
		},
		"create, installing, first report": {
			"it may be ready before the progress must be written",
			Situation{Operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseInstalling, 1, 0), StatusChanged: true, UnhandledSince: now.Add(-300 * time.Millisecond)},
			Decision{Action: Collect, After: 700 * time.Millisecond},
		},
		"create, installing for a while": {
			"the customer sees the progress",
			Situation{Operation: operation(database.CreateRequest, 1, 3*time.Second, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseInstalling, 1, 0), UnhandledSince: now.Add(-time.Second)},
			Decision{Action: Record, State: hub.Provisioning, Status: hub.Provisioning, After: time.Hour - 3*time.Second},
		},
		"create, installing, no change": {
			"nothing that the customer sees has changed",
			Situation{Operation: operation(database.CreateRequest, 1, time.Minute, hub.Provisioning), State: hub.Provisioning, Report: report(clusterservice.PhaseInstalling, 1, 0), UnhandledSince: now.Add(-time.Minute)},
			Decision{Action: Wait, State: hub.Provisioning, Status: hub.Provisioning, After: 59 * time.Minute},
		},
		"create, ready": {
			"done, at once",
			Situation{Operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseReady, 1, 1), StatusChanged: true, UnhandledSince: now},
			Decision{Action: Finish, State: hub.Succeeded, Status: hub.Succeeded},
		},
		"create, failed": {
			"Degraded explains more than Available",
			Situation{Operation: operation(database.CreateRequest, 1, time.Second, hub.Provisioning), State: hub.Provisioning, Report: broken},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: customererror.FromReport(broken)},
		},
		"create, overdue, identity missing": {
			"the error names the identity",
			Situation{Operation: operation(database.CreateRequest, 1, time.Hour, hub.Provisioning), State: hub.Provisioning, Report: withoutIdentity},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: customererror.MissingIdentities(time.Hour, withoutIdentity)},
		},
		"create, overdue, identity without a place for federated credentials": {
			"the error names the identity and the limit",
			Situation{Operation: operation(database.CreateRequest, 1, time.Hour, hub.Provisioning), State: hub.Provisioning, Report: fullIdentity},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: customererror.FullIdentities(time.Hour, fullIdentity)},
		},
		"create, overdue, key not usable": {
			"the error names the key",
			Situation{Operation: operation(database.CreateRequest, 1, time.Hour, hub.Provisioning), State: hub.Provisioning, Report: withoutKey},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: customererror.UnusableKey(time.Hour, withoutKey)},
		},
		"create, overdue, quota exceeded": {
			"the error names the size",
			Situation{Operation: operation(database.CreateRequest, 1, time.Hour, hub.Provisioning), State: hub.Provisioning, Report: withoutQuota},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: customererror.UnmetRequirements(time.Hour, withoutQuota)},
		},
		"create, overdue": {
			"every operation ends",
			Situation{Operation: operation(database.CreateRequest, 1, time.Hour, hub.Provisioning), State: hub.Provisioning, Report: report(clusterservice.PhaseInstalling, 1, 0)},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 1 hour."}},
		},
		"no operation, control plane lost": {
			"a cluster without its data is not shown as Succeeded",
			Situation{State: hub.Succeeded, Fleet: database.FleetState{Phase: clusterservice.PhaseReady}, Report: lost, UnhandledSince: now.Add(-time.Minute)},
			Decision{Action: Record, State: hub.Failed},
		},
		"no operation, new control plane accepted": {
			"the desired state is in effect again",
			Situation{State: hub.Failed, Generation: 1, Fleet: database.FleetState{Phase: clusterservice.PhaseLost}, Report: report(clusterservice.PhaseReady, 1, 1), UnhandledSince: now.Add(-time.Minute)},
			Decision{Action: Record, State: hub.Succeeded},
		},
		"no operation, failed before": {
			"only the end of a loss makes a failed cluster succeed",
			Situation{State: hub.Failed, Generation: 1, Fleet: database.FleetState{Phase: clusterservice.PhaseReady}, Report: report(clusterservice.PhaseReady, 1, 1), UnhandledSince: now.Add(-time.Minute)},
			Decision{Action: Wait, State: hub.Failed},
		},
		"update, control plane lost": {
			"the update cannot take effect on the customer's cluster",
			Situation{Operation: operation(database.UpdateRequest, 1, time.Second, hub.Updating), State: hub.Updating, Report: lost},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: customererror.ControlPlaneLost(lost)},
		},
		"update, ready with the last generation": {
			"the report is not of this operation: it is not yet in Cluster Service",
			Situation{Operation: operation(database.UpdateRequest, 2, time.Second, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseReady, 1, 1)},
			Decision{Action: Apply},
		},
		"update, stored, old generation in effect": {
			"the phase is Ready, but of the last generation",
			Situation{Operation: operation(database.UpdateRequest, 2, time.Minute, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseReady, 2, 1), UnhandledSince: now.Add(-time.Minute)},
			Decision{Action: Record, State: hub.Updating, Status: hub.Updating, After: 59 * time.Minute},
		},
		"update, failed with the last generation": {
			"the failure is what the update is to repair",
			Situation{Operation: operation(database.UpdateRequest, 2, time.Second, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseFailed, 1, 0)},
			Decision{Action: Apply},
		},
		"update, accepted before a restart": {
			"the document shows that Cluster Service has it",
			Situation{Operation: operation(database.UpdateRequest, 2, time.Minute, hub.Updating), State: hub.Updating, Fleet: database.FleetState{AcceptedGeneration: 2}},
			Decision{Action: Wait, State: hub.Updating, Status: hub.Updating, After: 59 * time.Minute},
		},
		"update, lost by the fleet": {
			"the report counts, not the stored state",
			Situation{Operation: operation(database.UpdateRequest, 2, time.Minute, hub.Updating), State: hub.Updating, Fleet: database.FleetState{AcceptedGeneration: 2}, Report: report(clusterservice.PhaseReady, 1, 1)},
			Decision{Action: Apply},
		},
		"update, being deleted in the fleet": {
			"it was deleted without ARM",
			Situation{Operation: operation(database.UpdateRequest, 2, time.Second, hub.Updating), State: hub.Updating, Report: deleting},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: &database.OperationError{Code: "Conflict", Message: "The resource is being deleted."}},
		},
		"delete, not in Cluster Service": {
			"the grace period has ended",
			Situation{Operation: operation(database.DeleteRequest, 1, time.Second, hub.Deleting), State: hub.Deleting, Report: report(clusterservice.PhaseReady, 1, 1)},
			Decision{Action: Remove},
		},
		"delete, lost by the fleet": {
			"the report counts, not the stored state",
			Situation{Operation: operation(database.DeleteRequest, 1, time.Minute, hub.Deleting), State: hub.Deleting, Fleet: database.FleetState{Phase: clusterservice.PhaseDeleting}, Report: report(clusterservice.PhaseReady, 1, 1)},
			Decision{Action: Remove},
		},
		"create, never accepted": {
			"every operation ends: this is the last attempt",
			Situation{Operation: operation(database.CreateRequest, 1, time.Hour, hub.Accepted), State: hub.Accepted},
			Decision{Action: Apply, Failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 1 hour."}},
		},
		"delete, never accepted": {
			"every operation ends: this is the last attempt",
			Situation{Operation: operation(database.DeleteRequest, 1, 12*time.Hour, hub.Deleting), State: hub.Deleting, Report: report(clusterservice.PhaseReady, 1, 1)},
			Decision{Action: Remove, Failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 12 hours."}},
		},
		"delete, running": {
			"nothing has changed",
			Situation{Operation: operation(database.DeleteRequest, 1, time.Hour, hub.Deleting), State: hub.Deleting, Report: deleting},
			Decision{Action: Wait, State: hub.Deleting, Status: hub.Deleting, After: 11 * time.Hour},
		},
		"delete, overdue": {
			"every operation ends",
			Situation{Operation: operation(database.DeleteRequest, 1, 12*time.Hour, hub.Deleting), State: hub.Deleting, Report: deleting},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 12 hours."}},
		},
		"delete, deleted": {
			"the resource is removed",
			Situation{Operation: operation(database.DeleteRequest, 1, time.Second, hub.Deleting), State: hub.Deleting, Report: report(clusterservice.PhaseDeleted, 1, 1)},
			Decision{Action: Purge, Status: hub.Succeeded},
		},
		"create, deleted": {
			"a deleted resource cannot be created",
			Situation{Operation: operation(database.CreateRequest, 1, time.Second, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseDeleted, 1, 0)},
			Decision{Action: Purge, Status: hub.Canceled, Failure: &database.OperationError{Code: "Canceled", Message: "The resource was deleted before the operation was complete."}},
		},
		"no operation, deleted": {
			"a node pool is deleted with its cluster, without an operation of its own",
			Situation{State: hub.Deleting, Report: report(clusterservice.PhaseDeleted, 1, 1)},
			Decision{Action: Purge, Status: hub.Succeeded},
		},
		"create, over the limit of its tags": {
			"the customer has set a shorter deadline",
			Situation{Operation: operation(database.CreateRequest, 1, 2*time.Minute, hub.Provisioning), State: hub.Provisioning, Report: report(clusterservice.PhaseInstalling, 1, 0), Limits: Limits{Creation: 90 * time.Second}},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 90 seconds."}},
		},
		"update, accepted": {
			"the customer sees that the update is carried out",
			Situation{Operation: operation(database.UpdateRequest, 2, time.Second, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseUpdating, 2, 1)},
			Decision{Action: Record, State: hub.Updating, Status: hub.Updating, After: time.Hour - time.Second},
		},
		"update, over the limit of creation": {
			"the limit applies to the creation only",
			Situation{Operation: operation(database.UpdateRequest, 2, 2*time.Minute, hub.Updating), State: hub.Updating, Report: report(clusterservice.PhaseUpdating, 2, 1), Limits: Limits{Creation: 90 * time.Second}},
			Decision{Action: Wait, State: hub.Updating, Status: hub.Updating, After: 58 * time.Minute},
		},
		"delete, over the limit of its tags": {
			"the customer has set a shorter deadline",
			Situation{Operation: operation(database.DeleteRequest, 1, 2*time.Minute, hub.Deleting), State: hub.Deleting, Report: deleting, Limits: Limits{Deletion: time.Minute}},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: &database.OperationError{Code: "DeadlineExceeded", Message: "The operation was not complete within 1 minute."}},
		},
		"external auth, without its secret": {
			"the customer must provide the secret",
			Situation{Operation: operation(database.CreateRequest, 1, time.Minute, hub.Accepted), State: hub.Accepted, Report: report(clusterservice.PhaseAwaitingSecret, 1, 1), StatusChanged: true},
			Decision{Action: Record, State: hub.AwaitingSecret, Status: hub.AwaitingSecret, After: 59 * time.Minute},
		},
		"external auth, after a restart": {
			"the last report still holds",
			Situation{Operation: operation(database.CreateRequest, 1, time.Minute, hub.AwaitingSecret), State: hub.AwaitingSecret, Fleet: database.FleetState{AcceptedGeneration: 1, Phase: clusterservice.PhaseAwaitingSecret}},
			Decision{Action: Wait, State: hub.AwaitingSecret, Status: hub.AwaitingSecret, After: 59 * time.Minute},
		},
		"external auth, secret never provided": {
			"every operation ends",
			Situation{Operation: operation(database.CreateRequest, 1, time.Hour, hub.AwaitingSecret), State: hub.AwaitingSecret, Report: awaiting},
			Decision{Action: Finish, State: hub.Failed, Status: hub.Failed, Failure: &database.OperationError{Code: "AwaitingSecret", Message: "The secret of a confidential client was not created in the cluster within 1 hour. Missing: a/b.", Target: "properties.clients"}},
		},
		"external auth, secret provided late": {
			"it is in effect, so it is no longer Failed",
			Situation{Generation: 1, State: hub.Failed, Fleet: database.FleetState{AcceptedGeneration: 1, Phase: clusterservice.PhaseAwaitingSecret}, Report: report(clusterservice.PhaseReady, 1, 1)},
			Decision{Action: Record, State: hub.Succeeded},
		},
		"no operation, changed": {
			"the customer sees the status of the cluster",
			Situation{State: hub.Succeeded, Report: report(clusterservice.PhaseReady, 1, 1), StatusChanged: true, UnhandledSince: now.Add(-time.Second)},
			Decision{Action: Record, State: hub.Succeeded},
		},
		"no operation, no change": {
			"nothing that the customer sees has changed",
			Situation{State: hub.Succeeded, Report: report(clusterservice.PhaseReady, 1, 1), UnhandledSince: now.Add(-time.Second)},
			Decision{Action: Wait, State: hub.Succeeded},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.s.Now, c.s.Timing = now, Timing{}.WithDefaults()
			got := Decide(c.s)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(Decision{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestLimitsFromExperiments(t *testing.T) {
	for name, c := range map[string]struct {
		reason   string
		inEffect map[string]string
		want     Limits
	}{
		"cluster":   {"both durations are limits", map[string]string{experiment.ClusterCreationDeadline: "90m", experiment.ClusterDeletionDeadline: "2h"}, Limits{90 * time.Minute, 2 * time.Hour}},
		"node pool": {"its creation has a limit", map[string]string{experiment.NodePoolCreationDeadline: "1h"}, Limits{Creation: time.Hour}},
		"others":    {"no limit is set", map[string]string{experiment.ClusterCreationDeadline: "-1h", experiment.SingleReplica: "1h"}, Limits{}},
		"none":      {"no limit is set", nil, Limits{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LimitsFromExperiments(c.inEffect); got != c.want {
				t.Errorf("%+v, want %+v: %s", got, c.want, c.reason)
			}
		})
	}
}
