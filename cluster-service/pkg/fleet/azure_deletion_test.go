package fleet

import (
	"errors"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

var ada = &csv1.Actor{Name: "ada@example.com", Reason: "the customer's roles are their own"}

// TestOnlyStuckCreationStepsCanBeForced checks which steps of a creation can be forced, and the refusals of the others.
func TestOnlyStuckCreationStepsCanBeForced(t *testing.T) {
	tests := map[string]struct {
		reason string
		step   string
		after  time.Duration
		given  func(t *ClusterAggregate)
		// refused is a part of the refusal; empty when it is forced.
		refused string
		unknown bool
	}{
		"Stuck":    {"the step exceeded its time limit", "azure/operator-roles", time.Hour, nil, "", false},
		"NotStuck": {"the step is within its time limit", "azure/operator-roles", time.Minute, nil, "may be forced from 2026-03-01T12:15:00Z on", false},
		"Done":     {"the cluster does not wait for it", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Azure.Step(AzureRoles).Done = true }, "is done. The cluster waits for: azure/resource-group", false},
		"Again": {"the step was forced before", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) {
			t.Azure.Step(AzureRoles).Forced = &AzureForce{By: "bob@example.com"}
		}, "was forced by bob@example.com", false},
		"Identities": {"the HostedCluster needs the client IDs", "azure/identities", time.Hour, nil, "cannot be forced: the control plane is not created without", false},
		"Unknown":    {"a step is named as in the progress", "operator-roles", time.Hour, nil, `There is no step "operator-roles". The cluster waits for: azure/resource-group`, true},
		"NoAzure":    {"no Azure step exists", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Azure = nil }, "The cluster waits for no step that can be forced.", true},
		"Ready":      {"a cluster that was ready once waits for no step", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Cluster.Status.ObservedGeneration = 1 }, "waits for no step", false},
		"Deleting":   {"a deletion has its own steps", "azure/operator-roles", time.Hour, func(t *ClusterAggregate) { t.Cluster.DeleteTime = azureDay }, "force a step of its deletion instead", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, aggregate := inAzure(t)
			if tc.given != nil {
				tc.given(aggregate)
			}
			err := r.ForceCreationStep(azureDay.Add(tc.after), aggregate, tc.step, ada)
			if tc.refused == "" {
				if err != nil || aggregate.Azure.Step(AzureRoles).Forced.By != ada.Name {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			var refusal *StepRefusal
			if !errors.As(err, &refusal) || refusal.Unknown != tc.unknown || !strings.Contains(refusal.Message, tc.refused) {
				t.Errorf("%s: refused with %v, want %q", tc.reason, err, tc.refused)
			}
		})
	}
}

// TestForcedStepIsRetriedAndNotAwaited checks that a cluster does not wait for a forced step, and that the step is retried until it
// succeeds.
func TestForcedStepIsRetriedAndNotAwaited(t *testing.T) {
	r, aggregate := inAzure(t)
	aggregate.Cluster.SigningKey, aggregate.Works[0].Observed.EndpointHost = []byte("sealed"), "192.0.2.1"
	r.planAzure(azureDay, aggregate)
	for _, kind := range AzureKinds() {
		if kind != AzureRoles {
			input, _ := r.AzureInput(aggregate, kind)
			aggregate.Azure.Record(azureDay, outcomeOf(kind, input))
		}
	}
	later := azureDay.Add(time.Hour)
	aggregate.Azure.Record(later, AzureOutcome{Kind: AzureRoles, Error: "the customer must act"})
	if r.azureReady(aggregate) {
		t.Fatal("the cluster is reported ready with a failing step")
	}
	if err := r.ForceCreationStep(later, aggregate, "azure/operator-roles", ada); err != nil {
		t.Fatal(err)
	}
	r.planAzure(later, aggregate)
	if !r.azureReady(aggregate) {
		t.Error("the cluster waits for the forced step")
	}
	layers := aggregate.azureLayers()
	if len(layers) != 1 || layers[0].state != "Ready" || layers[0].message != "12 of 13 Azure resources of the cluster exist. ada@example.com let the creation continue without the check of the operators' roles "+
		"(the customer's roles are their own); its last attempt failed: the customer must act." {
		t.Errorf("the progress is %v", layers)
	}
	step := aggregate.Azure.Step(AzureRoles)
	for range 30 {
		aggregate.Azure.Record(later, AzureOutcome{Kind: AzureRoles, Error: "the customer must act"})
	}
	r.planAzure(later, aggregate)
	if wait := step.RetryTime.Sub(later); !step.Due || wait != azureLastForced {
		t.Errorf("it is retried after %v", wait)
	}
	// It also reads the identities again.
	if n := aggregate.RetryAzure(later, ada); n != 2 || !step.RetryTime.IsZero() {
		t.Errorf("a retry retries %d steps", n)
	}
	aggregate.Azure.Record(later, AzureOutcome{Kind: AzureRoles, Done: true})
	r.planAzure(later, aggregate)
	if layers := aggregate.azureLayers(); step.Forced != nil || layers[0].message != "All 13 Azure resources of the cluster exist." {
		t.Errorf("after success the step is %+v and the progress %v", step, layers)
	}
}
