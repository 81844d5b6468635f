package fleet_test

import (
	"slices"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

func TestDriftOfWorks(t *testing.T) {
	deleting := identified("first")
	deleting.Removals = []feedback.Removal{removedHostedCluster(maestroapi.RemovedBeingDeleted, time.Time{})}
	rejected := identified("first")
	rejected.Applied = feedback.Condition{Status: "False"}
	tests := map[string]struct {
		reason string
		change func(*fleet.ClusterAggregate, *fleet.Work)
		want   string
	}{
		"Same":          {"all layers agree", func(*fleet.ClusterAggregate, *fleet.Work) {}, ""},
		"On its way":    {"new content is being published", func(_ *fleet.ClusterAggregate, w *fleet.Work) { w.Desired++ }, ""},
		"Unpublished":   {"Maestro is away", func(_ *fleet.ClusterAggregate, w *fleet.Work) { w.Desired, w.Error = w.Published+1, "unavailable" }, clusterstatus.DriftUnpublished},
		"Refused":       {"Maestro rejects it", func(_ *fleet.ClusterAggregate, w *fleet.Work) { w.Refused = true }, clusterstatus.DriftRefused},
		"Rejected":      {"the management cluster rejects it", func(_ *fleet.ClusterAggregate, w *fleet.Work) { w.Observed = rejected }, clusterstatus.DriftNotApplied},
		"Permanently":   {"the management cluster refuses the desired version", func(_ *fleet.ClusterAggregate, w *fleet.Work) { refuse(w, w.Desired) }, clusterstatus.DriftApplyRefused},
		"Never applied": {"it does not exist because it is refused", func(_ *fleet.ClusterAggregate, w *fleet.Work) { refuse(w, w.Desired); w.Observed.Missing = true }, clusterstatus.DriftApplyRefused},
		"Earlier":       {"the management cluster refused an earlier version", func(_ *fleet.ClusterAggregate, w *fleet.Work) { refuse(w, w.Desired-1) }, clusterstatus.DriftNotApplied},
		"Missing":       {"it does not exist", func(_ *fleet.ClusterAggregate, w *fleet.Work) { w.Observed = missing() }, clusterstatus.DriftRemoved},
		"Being removed": {"another client deletes it", func(_ *fleet.ClusterAggregate, w *fleet.Work) { w.Observed = deleting }, clusterstatus.DriftBeingRemoved},
		"Replaced":      {"it is another one", func(_ *fleet.ClusterAggregate, w *fleet.Work) { w.Observed = identified("second") }, clusterstatus.DriftReplaced},
		"Foreign": {"another client set a field that no manifest sets", func(_ *fleet.ClusterAggregate, w *fleet.Work) {
			w.Observed.ForeignFields = []maestroapi.ForeignField{{Path: "spec.pausedUntil", Manager: "kubectl-edit", Value: "true"}}
		}, clusterstatus.DriftForeignFields},
		"Deleting": {"the customer deletes the cluster", func(a *fleet.ClusterAggregate, w *fleet.Work) { w.Observed, a.Cluster.DeleteTime = missing(), start }, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := installed(t)
			w := aggregate.Work(fleet.HostedCluster, "")
			w.Published = w.Desired
			tc.change(aggregate, w)
			settle(t, aggregate, nil)
			if got := aggregate.DriftOf(w); got != tc.want {
				t.Errorf("drift %q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

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
