package feedback_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// component is what an agent reports of one manifest.
func component(name, available string, values map[string]string) map[string]any {
	var list []any
	for _, value := range []string{"version", "condition-RolloutComplete-status", "condition-RolloutComplete-reason", "condition-RolloutComplete-message"} {
		if text, ok := values[value]; ok {
			list = append(list, map[string]any{"name": value, "fieldValue": map[string]any{"type": "String", "string": text}})
		}
	}
	return map[string]any{"resourceMeta": map[string]any{"group": "hypershift.openshift.io", "kind": "ControlPlaneComponent", "name": name},
		"conditions": []any{map[string]any{"type": "Available", "status": available}}, "statusFeedback": map[string]any{"values": list}}
}

// TestComponents: each manifest is a component of its own, and those that are not there are none.
func TestComponents(t *testing.T) {
	complete := map[string]string{"version": "4.21.4", "condition-RolloutComplete-status": "True", "condition-RolloutComplete-reason": "AsExpected"}
	rolling := map[string]string{"version": "4.20.16", "condition-RolloutComplete-status": "False", "condition-RolloutComplete-reason": "WaitingForRolloutComplete",
		"condition-RolloutComplete-message": "0 out of 3"}
	observed := decodeManifests(t, component("etcd", "True", complete), component("kube-apiserver", "True", rolling), component("cluster-autoscaler", "False", complete),
		component("metrics-proxy", "True", nil), component("", "True", complete), component(strings.Repeat("x", 254), "True", complete))
	want := map[string]feedback.Component{
		"etcd":           {Version: "4.21.4", Rollout: feedback.Condition{Status: "True", Reason: "AsExpected"}},
		"kube-apiserver": {Version: "4.20.16", Rollout: feedback.Condition{Status: "False", Reason: "WaitingForRolloutComplete", Message: "0 out of 3"}},
	}
	if diff := cmp.Diff(want, observed.Components); diff != "" {
		t.Error(diff)
	}
	if observed.Version != "" || observed.Conditions != nil {
		t.Errorf("what a component says is taken for the work's: %+v", observed)
	}
}

// TestComponentsAreBounded has an agent report more components than there are.
func TestComponentsAreBounded(t *testing.T) {
	var many []any
	for i := range 1000 {
		many = append(many, component(fmt.Sprint("c", i), "True", map[string]string{"version": strings.Repeat("4", 1<<12)}))
	}
	observed := decodeManifests(t, many...)
	stored, err := json.Marshal(observed)
	if err != nil || len(observed.Components) != 64 || len(stored) > 100<<10 {
		t.Errorf("kept are %d components in %d bytes, %v", len(observed.Components), len(stored), err)
	}
}
