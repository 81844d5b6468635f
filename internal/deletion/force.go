package deletion

import (
	"slices"
	"strings"
)

// ARMStepKind returns the kind of a step on the ARM side by the step's name, or an empty string for a step of Cluster
// Service. Cluster Service names its steps by what they remove, in one part, in two, or in two and a word, for example
// node-pool/np1/publish.
func ARMStepKind(name string) string {
	parts := strings.Split(name, "/")
	kind := parts[len(parts)-1]
	if len(parts) == 2 || !slices.Contains(StepKinds(), kind) {
		return ""
	}
	return kind
}

// ForceRefusal returns why a step on the ARM side cannot be forced and what to do instead, or an empty string for other
// kinds. These steps either write what must be true after the deletion, or wait for Cluster Service, whose own steps
// can be forced.
func ForceRefusal(kind string) string {
	const retried = " The backend retries it; a retry of the deletion retries it at once."
	switch kind {
	case StepChildrenMarked:
		return "It marks the children of the cluster as being deleted. If it were forced, resources of a deleted cluster would be shown and served." + retried
	case StepFleetAccepted:
		return "Cluster Service has not accepted the deletion. If it were forced, the cluster would keep running without an owner. Restore Cluster Service, or remove the cause that it reports." + retried
	case StepFleetDeleted:
		return "Cluster Service has not reported that the deletion is complete. If it were forced, the remaining resources would have no owner. Force the stuck steps of Cluster Service instead; this step ends with them."
	case StepBillingEnded:
		return "It records the end of the cluster's billing. If it were forced, the customer would continue to pay. Make the container Billing in Cosmos DB writable." + retried
	case StepChildrenRemoved, StepDocumentsRemoved:
		return "It removes documents and reservations. If it were forced, the name could not be used again. Make Cosmos DB writable." + retried
	}
	return ""
}
