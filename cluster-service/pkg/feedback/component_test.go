package feedback_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// component returns an agent's report of one manifest. rollout is the condition RolloutComplete, as JSON.
func component(name, available, version, rollout string) map[string]any {
	values := []any{map[string]any{"name": "version", "fieldValue": map[string]any{"type": "String", "string": version}}}
	if rollout != "" {
		values = append(values, map[string]any{"name": "conditions", "fieldValue": map[string]any{"type": "JsonRaw", "jsonRaw": "[" + rollout + "]"}})
	}
	return map[string]any{"resourceMeta": map[string]any{"group": "hypershift.openshift.io", "kind": "ControlPlaneComponent", "name": name},
		"conditions": []any{map[string]any{"type": "Available", "status": available}}, "statusFeedback": map[string]any{"values": values}}
}

// TestComponents checks that each manifest is one component and that components that do not exist are left out.
func TestComponents(t *testing.T) {
	const complete = `{"type":"RolloutComplete","status":"True","reason":"AsExpected"}`
	const rolling = `{"type":"RolloutComplete","status":"False","reason":"WaitingForRolloutComplete","message":"0 out of 3"}`
	observed := decodeManifests(t, component("etcd", "True", "4.21.4", complete), component("kube-apiserver", "True", "4.20.16", rolling),
		component("cluster-autoscaler", "False", "4.21.4", complete), component("metrics-proxy", "True", "", ""), component("", "True", "4.21.4", complete),
		component(strings.Repeat("x", 254), "True", "4.21.4", complete))
	want := map[string]feedback.Component{
		"etcd":           {Version: "4.21.4", Rollout: feedback.Condition{Status: "True", Reason: "AsExpected"}},
		"kube-apiserver": {Version: "4.20.16", Rollout: feedback.Condition{Status: "False", Reason: "WaitingForRolloutComplete", Message: "0 out of 3"}},
	}
	if diff := cmp.Diff(want, observed.Components); diff != "" {
		t.Error(diff)
	}
	if observed.Version != "" || observed.Conditions != nil {
		t.Errorf("values of a component are read as values of the main object: %+v", observed)
	}
}

// TestComponentsAreBounded reports more components than a control plane has.
func TestComponentsAreBounded(t *testing.T) {
	var many []any
	for i := range 1000 {
		many = append(many, component(fmt.Sprint("c", i), "True", strings.Repeat("4", 1<<12), ""))
	}
	observed := decodeManifests(t, many...)
	stored, err := json.Marshal(observed)
	if err != nil || len(observed.Components) != 64 || len(stored) > 100<<10 {
		t.Errorf("stored %d components in %d bytes, %v", len(observed.Components), len(stored), err)
	}
}
