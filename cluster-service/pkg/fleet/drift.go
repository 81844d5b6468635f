package fleet

import (
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The kinds of drift of a work: how the layers below Cluster Service differ from it. A work that is on its way has no drift.
const (
	// DriftRefused: Maestro rejects the content. DriftUnpublished: publishing to Maestro fails.
	DriftRefused     = "Refused"
	DriftUnpublished = "Unpublished"
	// DriftRemoved: the main object does not exist on the management cluster. DriftBeingRemoved: another client deletes it.
	DriftRemoved      = "Removed"
	DriftBeingRemoved = "BeingRemoved"
	// DriftReplaced: the HostedCluster is not the one that the cluster was installed with.
	DriftReplaced = "Replaced"
	// DriftNotApplied: the management cluster rejects the objects.
	DriftNotApplied = "NotApplied"
)

// DriftOf returns the drift of a work of the aggregate; empty if there is none, and for works that are being deleted.
func (t *ClusterAggregate) DriftOf(w *Work) string {
	if w == nil || w.Deleting() || t.Cluster == nil || t.Cluster.Deleting() {
		return ""
	}
	cp := t.Cluster.Status.GetControlPlane()
	lost := w.Kind == HostedCluster && t.Cluster.Status.GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_LOST
	switch {
	case w.Refused:
		return DriftRefused
	case lost && cp.GetReplacementUid() != "":
		return DriftReplaced
	case w.Observed.Missing:
		return DriftRemoved
	case w.Observed.BeingRemoved(), lost:
		return DriftBeingRemoved
	case w.Observed.Applied.Status == "False":
		return DriftNotApplied
	case w.Published < w.Desired && w.Error != "":
		return DriftUnpublished
	}
	return ""
}
