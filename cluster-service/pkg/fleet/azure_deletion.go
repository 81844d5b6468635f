package fleet

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
)

// azureName returns the name of the deletion step that removes an Azure resource.
func azureName(kind AzureKind) string { return azurePrefix + string(kind) }

const azurePrefix = "azure/"

// azureRemovals returns the steps of a cluster's deletion in Azure.
func (t *ClusterAggregate) azureRemovals() []*csv1.DeletionStep {
	if t.Azure == nil {
		return nil
	}
	var steps []*csv1.DeletionStep
	for _, s := range t.Azure.Steps {
		step := &csv1.DeletionStep{Name: azureName(s.Kind), Kind: deletiongraph.AzureResource, Layer: LayerAzure, State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING}
		for _, w := range t.Works {
			if w.Kind != Namespaces {
				_, name := t.stepOf(w)
				step.After = append(step.After, name)
			}
		}
		for _, other := range t.Azure.Steps {
			if azureNeeds[other.Kind] == s.Kind {
				step.After = append(step.After, azureName(other.Kind))
			}
		}
		if t.Azure.Deleting && s.Due {
			step.State = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
			step.Attempts, step.LastError = s.Attempts, s.Error
			step.WaitsFor = "Waiting for Cluster Service to remove " + describeAzure[s.Kind] + "."
			if s.Awaited != "" {
				step.WaitsFor = "Waiting for " + s.Awaited + "."
			}
		}
		steps = append(steps, step)
	}
	return steps
}

// azureStep returns the Azure step that a deletion step removes, or nil.
func (t *ClusterAggregate) azureStep(step *csv1.DeletionStep) *AzureStep {
	if step.GetKind() != deletiongraph.AzureResource || t.Azure == nil {
		return nil
	}
	i := slices.IndexFunc(t.Azure.Steps, func(s *AzureStep) bool { return azureName(s.Kind) == step.GetName() })
	if i < 0 {
		return nil
	}
	return t.Azure.Steps[i]
}

// forceAzure ends the removal of an Azure resource without its confirmation.
func (t *ClusterAggregate) forceAzure(now time.Time, step *csv1.DeletionStep, a *AzureStep, graphs []*csv1.Deletion, actor *csv1.Actor) *csv1.DeletionStep {
	forced := proto.CloneOf(step)
	forced.State, forced.Since, forced.WaitsFor, forced.Stuck, forced.StuckTime = csv1.DeletionStepState_DELETION_STEP_STATE_FORCED, timestamp(now), "", false, nil
	forced.Force = &csv1.DeletionForce{Actor: proto.CloneOf(actor), Time: timestamp(now),
		LeftBehind: "May be left in Azure: " + describeAzure[a.Kind] + ". Cluster Service no longer removes it: if it exists, delete it by hand."}
	deletiongraph.Replace(graphs, forced)
	t.Azure.Steps = slices.DeleteFunc(t.Azure.Steps, func(s *AzureStep) bool { return s == a })
	return forced
}

// retryAzureDeletion retries the steps that remove Azure resources at once, and returns their names.
func (t *ClusterAggregate) retryAzureDeletion(now time.Time, actor *csv1.Actor) []string {
	if t.Azure == nil || !t.Azure.Deleting {
		return nil
	}
	var retried []string
	for _, s := range t.Azure.Steps {
		step, graphs := t.step(azureName(s.Kind))
		if !s.Due || step.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
			continue
		}
		s.Attempts, s.Error, s.RetryTime = 0, "", time.Time{}
		deletiongraph.RecordAction(graphs, step, &csv1.DeletionStepAction{Actor: proto.CloneOf(actor), Time: timestamp(now)})
		retried = append(retried, azureName(s.Kind))
	}
	return retried
}

// RetryAzure retries all pending steps in Azure at once, including renewals, reads the identities again, and returns the number
// of these steps.
func (t *ClusterAggregate) RetryAzure(now time.Time, actor *csv1.Actor) int {
	if t.Azure == nil {
		return 0
	}
	if t.Azure.Deleting {
		return len(t.retryAzureDeletion(now, actor))
	}
	again := 0
	t.Azure.ReadIdentitiesAgain()
	for _, s := range t.Azure.Steps {
		switch {
		case s.Due && s.Done && s.Kind == AzureIdentities:
			// The last failure stays visible until the identities are read.
			again++
		case s.Due && s.Done && s.Kind == AzureRequirements:
			s.RetryTime = now
			again++
		case s.Due && (!s.Done || s.Error != ""):
			s.Attempts, s.Polls, s.Error, s.RetryTime = 0, 0, "", time.Time{}
			again++
		}
	}
	return again
}

// ForceCreationStep lets the creation of a cluster proceed without a stuck step. The step is still retried, and the
// deletion of the cluster removes what it creates.
func (r Region) ForceCreationStep(now time.Time, t *ClusterAggregate, name string, actor *csv1.Actor) error {
	var step *AzureStep
	var open []string
	if t.Azure != nil && !t.Cluster.Deleting() {
		for _, s := range t.Azure.Steps {
			if azureName(s.Kind) == name {
				step = s
			}
			if s.awaited() {
				open = append(open, azureName(s.Kind))
			}
		}
	}
	waits := "The cluster waits for no step that can be forced."
	if len(open) > 0 {
		waits = "The cluster waits for: " + strings.Join(open, ", ") + "."
	}
	switch {
	case t.Cluster.Deleting():
		return refuse("The cluster is being deleted: force a step of its deletion instead, after the step is stuck.")
	case step == nil:
		return &StepRefusal{Unknown: true, Message: "There is no step \"" + name + "\". " + waits}
	case step.Kind == AzureIdentities:
		return refuse("Step %s cannot be forced: the control plane is not created without the client IDs of the identities.", name)
	case step.Done:
		return refuse("Step %s is done. %s", name, waits)
	case step.Forced != nil:
		return refuse("Step %s was forced by %s. %s", name, step.Forced.By, waits)
	case t.Cluster.Status.GetObservedGeneration() > 0:
		return refuse("The cluster is ready and waits for no step. Cluster Service retries %s until it succeeds.", name)
	}
	if stuck := step.Since.Add(r.StepLimits.Of(deletiongraph.AzureResource)); now.Before(stuck) {
		return refuse("Step %s is not stuck: it has been running since %s and may be forced from %s on. A retry is allowed now.", name,
			step.Since.Format(time.RFC3339), stuck.Format(time.RFC3339))
	}
	step.Forced = &AzureForce{By: actor.GetName(), Reason: actor.GetReason(), Time: now}
	return nil
}

// ForcedStepEffect returns the effect of forcing a step of a creation, as a sentence.
func ForcedStepEffect(name string) string {
	return "The cluster no longer waits for step " + name + ", " + describeAzure[AzureKind(strings.TrimPrefix(name, azurePrefix))] +
		". Cluster Service still retries the step. The deletion of the cluster removes what the step creates."
}
