package fleet

import "github.com/hcpmesh/hcpmesh/internal/clusterstatus"

// DriftOf returns the drift of a work of the aggregate, as layerprogress names it; empty if there is none, for a work that is on its way, and for
// works that are being deleted.
func (t *ClusterAggregate) DriftOf(w *Work) string {
	if w == nil || w.Deleting() || t.Cluster == nil || t.Cluster.Deleting() {
		return ""
	}
	lost := ""
	if w.Kind == HostedCluster {
		lost = t.lostReason()
	}
	refused := t.refusedDrift(w)
	switch {
	case w.Refused:
		return clusterstatus.DriftRefused
	case lost == ControlPlaneReplaced:
		return clusterstatus.DriftReplaced
	case w.Refusal() != nil:
		return clusterstatus.DriftApplyRefused
	case w.Observed.Missing, lost == ControlPlaneRemoved:
		return clusterstatus.DriftRemoved
	case w.Observed.BeingRemoved(), lost == ControlPlaneBeingRemoved:
		return clusterstatus.DriftBeingRemoved
	case refused != "":
		return refused
	case w.Observed.Applied.Status == "False":
		return clusterstatus.DriftNotApplied
	case w.Published < w.Desired && w.Error != "":
		return clusterstatus.DriftUnpublished
	case len(w.Observed.ForeignFields) > 0:
		return clusterstatus.DriftForeignFields
	}
	return ""
}
