package render_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestControlPlaneNamespaceIsOnlyRead renders the work of a HostedCluster. The agent must report the identity of the control-plane
// namespace from a watch, and must never apply or delete it.
func TestControlPlaneNamespaceIsOnlyRead(t *testing.T) {
	r := renderer()
	aggregate := settled(t, r, func(*fleet.ClusterAggregate) {})
	bundle, err := r.Bundle(aggregate, aggregate.Work(fleet.HostedCluster, ""))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, manifest := range bundle.Manifests {
		var object map[string]any
		if err := json.Unmarshal(manifest, &object); err != nil {
			t.Fatal(err)
		}
		if object["kind"] != "Namespace" {
			continue
		}
		found++
		name := fleet.ControlPlaneNamespace(r.Environment, aggregate.Cluster)
		want := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
		if diff := cmp.Diff(want, object); diff != "" {
			t.Error(diff)
		}
		config := bundle.Configs[i]
		paths := []string{}
		for _, rule := range config.FeedbackRules {
			for _, path := range rule.JsonPaths {
				paths = append(paths, path.Path)
			}
		}
		if config.ResourceIdentifier != (workv1.ResourceIdentifier{Resource: "namespaces", Name: name}) ||
			config.UpdateStrategy.Type != workv1.UpdateStrategyTypeReadOnly || config.FeedbackScrapeType != workv1.FeedbackWatchType {
			t.Errorf("config %+v", config)
		}
		if diff := cmp.Diff([]string{".metadata.uid", ".metadata.creationTimestamp", ".metadata.deletionTimestamp"}, paths); diff != "" {
			t.Error(diff)
		}
	}
	if found != 1 {
		t.Errorf("%d control-plane namespaces", found)
	}
}
