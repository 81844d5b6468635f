package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// removal is the meaning of a kind of deletion step: what it waits for, the probable cause if it is stuck, and what an SRE
// must do then.
type removal struct{ awaits, likelyCause, overdueAction string }

// removals holds the steps by kind. Maestro's part of each step has the suffix -publish.
var removals = map[string]removal{
	"node-pool": {"node pool {part} to be removed", "A node that does not drain blocks its pool, and so does a machine that Azure does not delete.",
		"check the machines of the pool on {shard}"},
	"credential": {"a credential request to be removed", onlyAgent, checkAgent},
	"revocation": {"a revocation request to be removed", onlyAgent, checkAgent},
	"rollout":    {"the work that reads the components of its control plane to be removed", onlyAgent, checkAgent},
	"hosted-cluster": {"its control plane to be removed", "HyperShift keeps the HostedCluster until the cluster's cloud resources are deleted. A missing operator, or a resource that Azure does not delete, blocks it forever.",
		"check the conditions of the HostedCluster and the HostedControlPlane on {shard}"},
	"namespaces": {"its namespaces to be removed", "A namespace stays in Terminating while an object in it has a finalizer, or while a kind of object in it cannot be listed.",
		"remove the remaining objects in them on {shard}"},
	"external-auth": {"the HostedCluster on {shard} to drop it", "", "find out why the HostedCluster on {shard} does not accept the change"},

	deletion.StepChildrenMarked: {"its children to be marked for deletion", onlyDatabase, checkDatabase},
	deletion.StepFleetAccepted: {"Cluster Service to accept the deletion", "Cluster Service is unreachable or rejects the deletion.",
		"restore Cluster Service, or remove the cause that it reports; nothing is deleted until then"},
	deletion.StepFleetDeleted: {"Cluster Service to report that the deletion is complete", "The report has not reached the backend.", "check that the backend follows Cluster Service's changes"},
	deletion.StepBillingEnded: {"its end of billing to be recorded", "The cluster is gone from the fleet; Cosmos DB does not accept the billing record.",
		"search the backend's log for the error, and check that the container Billing of Cosmos DB accepts writes"},
	deletion.StepChildrenRemoved:  {"the documents of its children to be removed", onlyDatabase, checkDatabase},
	deletion.StepDocumentsRemoved: {"its document and reservations to be removed", onlyDatabase, checkDatabase},
}

const (
	onlyAgent     = "This needs only the agent of {shard}."
	onlyDatabase  = "This needs only Cosmos DB and the backend."
	checkDatabase = "search the backend's log for the error, and check that Cosmos DB accepts writes"
)

// backendSteps need nothing but the backend and Cosmos DB.
var backendSteps = []string{deletion.StepFleetDeleted, deletion.StepChildrenRemoved, deletion.StepDocumentsRemoved}

const publishSuffix = "-publish"

// runningSteps returns the steps in progress: stuck ones first, then by age.
func runningSteps(d *csv1.Deletion) []*csv1.DeletionStep {
	steps := deletion.BlockingSteps(d.GetSteps())
	slices.SortStableFunc(steps, func(a, b *csv1.DeletionStep) int {
		if a.GetStuck() != b.GetStuck() {
			if a.GetStuck() {
				return -1
			}
			return 1
		}
		return cmp.Compare(asTime(a.GetSince()).Unix(), asTime(b.GetSince()).Unix())
	})
	return steps
}

// deleting returns the item of a deletion in progress.
func (s *subject) deleting() adminv1.ExplanationItem {
	steps := runningSteps(s.graph)
	if len(steps) == 0 {
		item := s.item(adminv1.ExplanationDeleting, adminv1.PartyService, fmt.Sprintf("%s has been in deletion %s.", s.title(), s.since(s.deleted)), s.deleted)
		item.Layer, item.State = adminv1.LayerClusterService, "Deleting"
		s.assign(&item, wait{responsible: adminv1.PartyService})
		return item
	}
	step := steps[0]
	kind, publishing := strings.CutSuffix(step.GetKind(), publishSuffix)
	r, known := removals[kind]
	switch {
	case publishing:
		r = removal{"Maestro to accept the deletion of " + strings.TrimSuffix(step.GetName(), "/publish"), "", "restore Maestro; Cluster Service retries every 30 seconds"}
	case !known:
		r = removal{"step " + step.GetName(), "", "check what the step waits for"}
	}
	_, part, _ := strings.Cut(step.GetName(), "/")
	since := asTime(step.GetSince())
	summary := fmt.Sprintf("%s is being deleted and has been waiting for %s %s.", s.title(), strings.ReplaceAll(r.awaits, "{part}", part), s.since(since))
	item := s.item(adminv1.ExplanationDeleting, adminv1.PartyService, s.fill(summary), since)
	item.Layer, item.State = step.GetLayer(), step.GetName()
	item.Evidence = slices.Concat(s.deletionProgress(step), lastError(step))
	foreign := foreignFinalizers(step)
	if len(foreign) > 0 {
		r.likelyCause = fmt.Sprintf("Neither HyperShift nor Kubernetes removes %s. If its controller is gone, it stays forever.", join(foreign))
		r.overdueAction = "find the owner of the finalizer; if its controller is gone permanently, release the finalizer"
	}
	w := wait{responsible: adminv1.PartyService, usual: asTime(step.GetStuckTime()).Sub(since), likelyCause: r.likelyCause, overdueAction: r.overdueAction,
		command: "hcpctl deletion show {uid}", overdueCommand: mustGather}
	switch {
	case deletion.IsARMStep(step):
		w.overdueCommand = "hcpctl deletion retry {uid} --reason … --ticket …"
	case len(foreign) > 0:
		w.overdueCommand = "hcpctl deletion release {uid} " + step.GetName() + " " + strings.Join(foreign, " ") + " --reason … --ticket …"
	}
	if step.GetStuckTime() == nil {
		w.usual = 25 * time.Minute
	}
	if slices.Contains(backendSteps, kind) {
		item.Layer, w.usual = adminv1.ComponentBackend, backendDelay
	}
	s.assign(&item, w)
	for _, other := range steps[1:] {
		if other.GetStuck() {
			since := asTime(other.GetSince())
			item.Evidence = append(item.Evidence, sentenceAt(adminv1.SentenceStuckStep, fmt.Sprintf("Step %s is stuck as well, %s.", other.GetName(), s.since(since)), since))
		}
	}
	return item
}

// deletionProgress returns which step a deletion has reached, and what SREs did about it.
func (s *subject) deletionProgress(step *csv1.DeletionStep) []adminv1.Sentence {
	done := 0
	var forced, retried []adminv1.Sentence
	for _, other := range s.graph.GetSteps() {
		switch other.GetState() {
		case csv1.DeletionStepState_DELETION_STEP_STATE_DONE:
			done++
		case csv1.DeletionStepState_DELETION_STEP_STATE_FORCED:
			done++
			force := other.GetForce()
			at := asTime(force.GetTime())
			forced = append(forced, sentenceAt(adminv1.SentenceDeletionAction, fmt.Sprintf("%s forced step %s at %s (%s) and may have left behind: %s", force.GetActor().GetName(),
				other.GetName(), s.clock(at), force.GetActor().GetReason(), force.GetLeftBehind()), at))
		}
	}
	for _, i := range step.GetActions() {
		what := "retried it"
		if released := i.GetReleasedFinalizers(); len(released) > 0 {
			what = "released " + join(released)
		}
		at := asTime(i.GetTime())
		retried = append(retried, sentenceAt(adminv1.SentenceDeletionAction, fmt.Sprintf("%s %s at %s (%s).", i.GetActor().GetName(), what, s.clock(at), i.GetActor().GetReason()), at))
	}
	verb := "are"
	if done == 1 {
		verb = "is"
	}
	progress := sentenceAt(adminv1.SentenceDeletionProgress, fmt.Sprintf("The deletion was requested at %s; %d of %d steps %s done. Step %s: %s", s.clock(s.deleted), done,
		len(s.graph.GetSteps()), verb, step.GetName(), lowerFirst(step.GetWaitsFor())), s.deleted)
	return slices.Concat([]adminv1.Sentence{progress}, retried, forced)
}

// lastError returns the last error of a step, and how often it was tried.
func lastError(step *csv1.DeletionStep) []adminv1.Sentence {
	if step.GetLastError() == "" {
		return nil
	}
	return quoted(adminv1.SentenceLastError, "It was tried "+times(int64(max(step.GetAttempts(), 1)))+"; the last error was", step.GetLastError(), "")
}

// foreignFinalizers returns the finalizers of a step that no controller of hcpmesh, HyperShift or Kubernetes removes.
func foreignFinalizers(step *csv1.DeletionStep) []string {
	return slices.DeleteFunc(slices.Clone(step.GetFinalizers()), func(finalizer string) bool {
		return slices.ContainsFunc(managementcluster.PermanentFinalizers(), func(prefix string) bool { return strings.HasPrefix(finalizer, prefix) })
	})
}
