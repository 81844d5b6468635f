package deletion

import (
	"slices"
	"strings"
)

// ARMStepKind is the kind of a step of the ARM side by the step's name; empty for a step of Cluster Service's. Those are named by what
// they remove, in one part or in two and a word, as in node-pool/np1/publish.
func ARMStepKind(name string) string {
	parts := strings.Split(name, "/")
	kind := parts[len(parts)-1]
	if len(parts) == 2 || !slices.Contains(StepKinds(), kind) {
		return ""
	}
	return kind
}

// ForceRefusal says why a step of a kind of the ARM side cannot be forced, and what can be done instead; empty for what is not one
// of them. All of these either write what must be true when the deletion is over, or wait for Cluster Service, whose own steps
// can be forced.
func ForceRefusal(kind string) string {
	const again = " It is tried by itself, and at once with a retry of the deletion."
	switch kind {
	case StepChildrenMarked:
		return "It writes that what is beneath the cluster goes with it: left out, resources would be shown and served whose cluster is gone." + again
	case StepFleetAccepted:
		return "Cluster Service has not taken the deletion: left out, the cluster would run on and be nobody's. Bring Cluster Service back, or remove the cause that it names." + again
	case StepFleetDeleted:
		return "Cluster Service has not said that nothing is left: left out, what is left would be nobody's. The steps of Cluster Service that are stuck may be forced; this one ends with them."
	case StepBillingEnded:
		return "It writes the end of the cluster's life for billing: left out, the customer would pay on. Let the container Billing of Cosmos DB take writes." + again
	case StepChildrenRemoved, StepDocumentsRemoved:
		return "It removes documents and frees reserved names: left out, the name could not be used again. Let Cosmos DB take writes." + again
	}
	return ""
}
