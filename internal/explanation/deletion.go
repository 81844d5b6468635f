package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// removal is what a kind of step of a deletion removes: what is awaited, what is probably in the way when it is stuck, and
// what an SRE has to do.
type removal struct{ awaits, suspicion, stuck string }

// removals are by kind of step; those of Maestro's part of each end in -publish.
var removals = map[string]removal{
	"node-pool": {"the node pool {part} to be gone", "A node that does not drain keeps its pool, and so does a machine that Azure does not delete.",
		"look at the machines of the pool on {shard}"},
	"credential": {"the request of a credential to be gone", "Nothing but the agent of {shard} is needed for that.", "see whether that agent works"},
	"revocation": {"the request of a revocation to be gone", "Nothing but the agent of {shard} is needed for that.", "see whether that agent works"},
	"rollout":    {"the components of its control plane not to be read any more", "Nothing but the agent of {shard} is needed for that.", "see whether that agent works"},
	"hosted-cluster": {"its control plane to be gone", "HyperShift keeps the HostedCluster until the cluster's cloud resources are destroyed: an operator that is gone, or a resource that Azure does not delete, keeps it for ever.",
		"look at the conditions of the HostedCluster and HostedControlPlane on {shard}"},
	"namespaces": {"its namespaces to be gone", "A namespace is Terminating as long as anything in it has a finalizer, or a kind of object in it cannot be listed.",
		"remove what is left in them on {shard}"},
	"external-auth": {"{shard} to carry the HostedCluster without it", "", "see why the HostedCluster on {shard} does not take the change"},

	deletion.StepChildrenMarked: {"what is beneath it to be shown as being deleted", documents, heal},
	deletion.StepFleetAccepted: {"Cluster Service to take the deletion", "Cluster Service is away, then, or refuses it.",
		"bring Cluster Service back, or remove the cause that it names; what is meant to go stands until then"},
	deletion.StepFleetDeleted: {"Cluster Service to say that nothing is left", "Its word has not reached the backend, then.", "see whether the backend follows Cluster Service"},
	deletion.StepBillingEnded: {"the end of its life to be noted for billing", "It is gone from the fleet; Cosmos DB does not take the note, then.",
		"see what the backend's log says of it, and whether the container Billing of Cosmos DB takes writes"},
	deletion.StepChildrenRemoved:  {"the documents of what was beneath it to be removed", documents, heal},
	deletion.StepDocumentsRemoved: {"its document to be removed and its reserved names to be free", documents, heal},
}

// documents is what is probably in the way of a step that only writes ARM's documents, and heal what is to be done.
const (
	documents = "All that is needed for that is Cosmos DB and the backend."
	heal      = "see what the backend's log says of it, and whether Cosmos DB takes writes"
)

const publish = "-publish"

// running are the steps that are under way, those that are stuck first and the oldest before the newer.
func running(d *csv1.Deletion) []*csv1.DeletionStep {
	steps := deletion.BlockingSteps(d.GetSteps())
	slices.SortStableFunc(steps, func(a, b *csv1.DeletionStep) int {
		if a.GetStuck() != b.GetStuck() {
			if a.GetStuck() {
				return -1
			}
			return 1
		}
		return cmp.Compare(when(a.GetSince()).Unix(), when(b.GetSince()).Unix())
	})
	return steps
}

// deletion says which step it is at.
func (s *subject) deletion() Finding {
	finding := Finding{Subject: s.String(), Since: s.deleted, Layer: layerClusterService, State: "Deleting"}
	steps := running(s.graph)
	if len(steps) == 0 {
		finding.Says = fmt.Sprintf("%s has been on its way out %s.", upper(s.String()), s.since(s.deleted))
		s.act(&finding, wait{who: Service})
		finding.Acts = append(finding.Acts, s.outcome(wait{})...)
		return finding
	}
	at := steps[0]
	kind, publishing := strings.CutSuffix(at.GetKind(), publish)
	of, known := removals[kind]
	switch {
	case publishing:
		of = removal{"Maestro to take the deletion of " + strings.TrimSuffix(at.GetName(), "/publish"), "", "bring Maestro back; Cluster Service tries again every 30 seconds"}
	case !known:
		of = removal{"the step " + at.GetName(), "", "see what it waits for"}
	}
	_, part, _ := strings.Cut(at.GetName(), "/")
	of.awaits = strings.ReplaceAll(of.awaits, "{part}", part)

	finding.Layer, finding.State, finding.Since = at.GetLayer(), at.GetName(), when(at.GetSince())
	finding.Says = s.fill(fmt.Sprintf("%s is being deleted, and has been waiting for %s %s.", upper(s.String()), of.awaits, s.since(finding.Since)))
	finding.Because = append(finding.Because, s.howFar(at))
	finding.Because = append(finding.Because, evidence(at)...)
	foreign := foreignFinalizers(at)
	if len(foreign) > 0 {
		of.suspicion = fmt.Sprintf("What takes %s off is neither HyperShift nor Kubernetes; if it is gone, nothing ever will.", and(foreign))
		of.stuck = "find out whose finalizer that is; if its controller is gone for good, have the finalizer taken off"
	}
	w := wait{who: Service, usual: when(at.GetStuckTime()).Sub(finding.Since), suspicion: of.suspicion, stuck: of.stuck, command: "hcpctl deletion show {uid}",
		stuckCommand: mustGather}
	switch {
	case deletion.IsARMStep(at):
		w.stuckCommand = "hcpctl deletion retry {uid} --reason … --ticket …"
	case len(foreign) > 0:
		w.stuckCommand = "hcpctl deletion release {uid} " + at.GetName() + " " + strings.Join(foreign, " ") + " --reason … --ticket …"
	}
	if at.GetStuckTime() == nil {
		w.usual = 25 * time.Minute
	}
	s.act(&finding, w)
	finding.Acts = append(finding.Acts, s.outcome(wait{})...)
	for _, other := range steps[1:] {
		if other.GetStuck() {
			finding.Because = append(finding.Because, fmt.Sprintf("Step %s is stuck as well, %s.", other.GetName(), s.since(when(other.GetSince()))))
		}
	}
	return finding
}

// howFar says at which of its steps a deletion is, and what was done about it.
func (s *subject) howFar(at *csv1.DeletionStep) string {
	done := 0
	var forced []string
	for _, step := range s.graph.GetSteps() {
		switch step.GetState() {
		case csv1.DeletionStepState_DELETION_STEP_STATE_DONE:
			done++
		case csv1.DeletionStepState_DELETION_STEP_STATE_FORCED:
			done++
			force := step.GetForce()
			forced = append(forced, fmt.Sprintf(" %s forced step %s at %s (%s), and may have left behind: %s", force.GetActor().GetName(), step.GetName(),
				s.clock(when(force.GetTime())), force.GetActor().GetReason(), force.GetLeftBehind()))
		}
	}
	text := fmt.Sprintf("The deletion was asked for at %s, and %d of its %d steps are done. Step %s: %s", s.clock(s.deleted), done, len(s.graph.GetSteps()),
		at.GetName(), lower(at.GetWaitsFor()))
	for _, i := range at.GetActions() {
		what := "had it tried again"
		if released := i.GetReleasedFinalizers(); len(released) > 0 {
			what = "had " + and(released) + " taken off"
		}
		text += fmt.Sprintf(" %s %s at %s (%s).", i.GetActor().GetName(), what, s.clock(when(i.GetTime())), i.GetActor().GetReason())
	}
	return text + strings.Join(forced, "")
}

// evidence is what a step says beside what it waits for.
func evidence(step *csv1.DeletionStep) []string {
	if step.GetLastError() == "" {
		return nil
	}
	return []string{fmt.Sprintf("It was tried %d times, the last time with %s.", max(step.GetAttempts(), 1), quote(step.GetLastError()))}
}

// foreignFinalizers are those of a step that nothing of ours takes off.
func foreignFinalizers(step *csv1.DeletionStep) []string {
	var foreign []string
	for _, finalizer := range step.GetFinalizers() {
		if !slices.ContainsFunc(managementcluster.PermanentFinalizers(), func(beginning string) bool { return strings.HasPrefix(finalizer, beginning) }) {
			foreign = append(foreign, finalizer)
		}
	}
	return foreign
}
