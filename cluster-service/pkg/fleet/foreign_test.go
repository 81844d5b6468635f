package fleet_test

import (
	"slices"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// TestForeignFieldsAreNamed: a cluster whose HostedCluster has a field that no manifest sets is not shown as ready, and its progress names
// the field and the client. It is ready again when the field is removed. Its phase never changes.
func TestForeignFieldsAreNamed(t *testing.T) {
	a := installed(t)
	w := a.Work(fleet.HostedCluster, "")
	for _, work := range a.Works {
		work.Published = work.Desired
	}
	expect := func(reason, state, message string) {
		t.Helper()
		settle(t, a, nil)
		progress := a.Cluster.Status.GetProgress()
		i := slices.IndexFunc(progress, func(p *csv1.LayerProgress) bool { return p.GetLayer() == fleet.LayerManagementCluster })
		if got := progress[i]; got.GetState() != state || got.GetMessage() != message || a.Cluster.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY {
			t.Errorf("%s: %s, %s %q, want %s %q", reason, a.Cluster.Status.GetPhase(), got.GetState(), got.GetMessage(), state, message)
		}
		if concern := a.Concern(); (concern.State == clusterstatus.DriftForeignFields) != (state == clusterstatus.DriftForeignFields) {
			t.Errorf("%s: the concern is %+v", reason, concern)
		}
	}
	const applied = "The desired state is applied on the management cluster."
	expect("no foreign field", "Applied", applied)
	w.Observed.ForeignFields = []maestroapi.ForeignField{{Path: "spec.pausedUntil", Manager: "kubectl-edit", Value: "true"}, {Path: "spec.tolerations", Manager: "argocd"}}
	expect("two foreign fields", clusterstatus.DriftForeignFields, "kubectl-edit set spec.pausedUntil to true, which stops HyperShift. argocd set spec.tolerations.")
	if text := w.Proto().GetForeignFields(); text == "" {
		t.Error("the work does not name the fields")
	}
	w.Observed.ForeignFields = nil
	expect("they are removed", "Applied", applied)
}
