package fleet

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render/armproperty"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// Refusal returns why the API server of the management cluster permanently refuses the desired content of the work; nil if it does not, or
// if the last report is about another content. An older report must not end a newer operation: the refused version must be at least the one
// with which Maestro acknowledged the desired content. Without that acknowledgement the report may be about what was desired before.
func (w *Work) Refusal() *feedback.Refusal {
	r := w.Observed.Refusal
	if r == nil || w.Deleting() || w.Published < w.Desired || w.Version == 0 || r.Version < w.Version {
		return nil
	}
	return r
}

// permanentlyRefused reports whether Maestro or the management cluster permanently refuses the desired content.
func (w *Work) permanentlyRefused() bool { return w.Refused || w.Refusal() != nil }

// refusalText returns why the desired content is permanently refused; empty if it is not.
func (w *Work) refusalText() string {
	if r := w.Refusal(); r != nil && !w.Refused {
		return r.Kind + " " + r.Name + ": " + r.Message
	}
	return w.Error
}

// refuser returns what permanently refuses the desired content, to begin a sentence.
func (w *Work) refuser() string {
	if w.Refused {
		return "The management cluster's transport"
	}
	return "The management cluster"
}

// refusedCondition returns the condition Applied of a resource whose work is refused. Its message names the ARM properties of the resource
// that the refused fields come from. Another resource can be the cause: the HostedCluster also holds the external authentication.
func refusedCondition(w *Work, resource armproperty.Resource) condition {
	var properties []string
	for _, field := range w.Refusal().Fields {
		owner, property := armproperty.Of(w.Refusal().Kind, field)
		if property != "" && owner == resource && !slices.Contains(properties, property) {
			properties = append(properties, property)
		}
	}
	return condition{clusterstatus.Applied, "False", clusterstatus.ApplyRefused, clusterstatus.RefusedMessage(properties, w.refusalText())}
}

// clusterWork returns the work that determines whether a cluster is applied: that of its namespaces while it is refused, because the
// HostedCluster is in one of them, and otherwise that of the HostedCluster.
func (t *ClusterAggregate) clusterWork(hostedCluster *Work) *Work {
	if namespaces := t.Work(Namespaces, ""); namespaces != nil && namespaces.Refusal() != nil {
		return namespaces
	}
	return hostedCluster
}
