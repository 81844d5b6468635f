package fleet

// The kinds of drift of a work: how the layers below Cluster Service differ from it. A work that is on its way has no drift.
const (
	// DriftRefused: Maestro rejects the content. DriftUnpublished: publishing to Maestro fails.
	DriftRefused     = "Refused"
	DriftUnpublished = "Unpublished"
	// DriftRemoved: the main object does not exist on the management cluster. DriftBeingRemoved: another client deletes it.
	DriftRemoved      = "Removed"
	DriftBeingRemoved = "BeingRemoved"
	// DriftReplaced: the HostedCluster or its control-plane namespace is not the one that the cluster was installed with.
	DriftReplaced = "Replaced"
	// DriftApplyRefused: the API server of the management cluster permanently refuses the objects.
	DriftApplyRefused = "ApplyRefused"
	// DriftNotApplied: the objects could not be applied, and a retry can succeed.
	DriftNotApplied = "NotApplied"
	// DriftForeignFields: another client has set fields of the main object that no manifest sets.
	DriftForeignFields = "ForeignFields"
)

// DriftOf returns the drift of a work of the aggregate; empty if there is none, and for works that are being deleted.
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
		return DriftRefused
	case lost == ControlPlaneReplaced:
		return DriftReplaced
	case w.Refusal() != nil:
		return DriftApplyRefused
	case w.Observed.Missing, lost == ControlPlaneRemoved:
		return DriftRemoved
	case w.Observed.BeingRemoved(), lost == ControlPlaneBeingRemoved:
		return DriftBeingRemoved
	case w.Observed.Applied.Status == "False":
		return DriftNotApplied
	case w.Published < w.Desired && w.Error != "":
		return DriftUnpublished
	case len(w.Observed.ForeignFields) > 0:
		return DriftForeignFields
	}
	return ""
}
