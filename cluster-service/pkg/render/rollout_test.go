package render_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	workv1 "open-cluster-management.io/api/work/v1"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// TestRolloutReadsComponents checks that a rollout reads all components of a control plane and applies nothing.
func TestRolloutReadsComponents(t *testing.T) {
	r := renderer()
	aggregate := settled(t, r, func(aggregate *fleet.ClusterAggregate) {
		aggregate.Upgrades = []*fleet.Upgrade{{UID: "9a4b6f0e-7a52-4a0b-8a0d-0d4f0f6f3c42", ClusterUID: uid, Spec: &csv1.UpgradeSpec{}, Status: &csv1.UpgradeStatus{
			State: csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, Steps: []*csv1.UpgradeStep{{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE,
				State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING, ToVersion: "4.21.4"}}}}}
	})
	i := slices.IndexFunc(aggregate.Works, func(w *fleet.Work) bool { return w.Kind == fleet.RolloutWork })
	if i < 0 {
		t.Fatalf("no rollout work among %v", aggregate.Works)
	}
	bundle, err := r.Bundle(aggregate, aggregate.Works[i])
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, manifest := range bundle.Manifests {
		want := workv1.ResourceIdentifier{Group: "hypershift.openshift.io", Resource: "controlplanecomponents", Namespace: fleet.ControlPlaneNamespace(r.Environment, aggregate.Cluster)}
		var object struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		if err := json.Unmarshal(manifest, &object); err != nil {
			t.Fatal(err)
		}
		want.Name = object.Metadata.Name
		names = append(names, object.Metadata.Name)
		config := bundle.Configs[i]
		if object.APIVersion != "hypershift.openshift.io/v1beta1" || object.Kind != "ControlPlaneComponent" || object.Metadata.Namespace != want.Namespace ||
			config.ResourceIdentifier != want || config.UpdateStrategy.Type != workv1.UpdateStrategyTypeReadOnly || len(config.FeedbackRules) != 1 {
			t.Errorf("%s with %+v", manifest, config)
		}
	}
	if diff := cmp.Diff(release.ControlPlaneComponents(), names); diff != "" {
		t.Error(diff)
	}
	// A bundle must fit a message of Maestro, which may have 500 KiB.
	if text, err := json.Marshal(bundle); err != nil || len(text) > 64<<10 {
		t.Errorf("the bundle has %d bytes, %v", len(text), err)
	}
}
