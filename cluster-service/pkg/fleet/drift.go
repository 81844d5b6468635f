package fleet

import "github.com/hcpmesh/hcpmesh/internal/layerprogress"

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
	switch {
	case w.Refused:
		return layerprogress.DriftRefused
	case lost == ControlPlaneReplaced:
		return layerprogress.DriftReplaced
	case w.Refusal() != nil:
		return layerprogress.DriftApplyRefused
	case w.Observed.Missing, lost == ControlPlaneRemoved:
		return layerprogress.DriftRemoved
	case w.Observed.BeingRemoved(), lost == ControlPlaneBeingRemoved:
		return layerprogress.DriftBeingRemoved
	case w.Observed.Applied.Status == "False":
		return layerprogress.DriftNotApplied
	case w.Published < w.Desired && w.Error != "":
		return layerprogress.DriftUnpublished
	case len(w.Observed.ForeignFields) > 0:
		return layerprogress.DriftForeignFields
	}
	return ""
}
