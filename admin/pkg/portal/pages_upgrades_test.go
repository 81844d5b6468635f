package portal

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

const testUpgrade = "9d4b1c7e-52a0-4e36-8f1d-3c6a7b9e0d04"

// fillUpgrades sets the responses about upgrades: one in progress that waits for a gate, a plan, and a policy.
func (f *fakeAPI) fillUpgrades(text string, cluster adminv1.Cluster) {
	gates := []*clusterservicev1.UpgradeGate{
		{Name: "minor-version", State: clusterservicev1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING, Message: "Waiting for an acknowledgement of 4.21.", CanBeAcknowledged: true},
		{Name: "cluster-ready", State: clusterservicev1.UpgradeGateState_UPGRADE_GATE_STATE_PASSED, Message: text},
		{Name: "risk-" + text, State: clusterservicev1.UpgradeGateState_UPGRADE_GATE_STATE_ACKNOWLEDGED, AcknowledgedBy: &clusterservicev1.Actor{Name: text, Reason: text}}}
	steps := []*clusterservicev1.UpgradeStep{
		{Kind: clusterservicev1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, FromVersion: "4.20.8", ToVersion: "4.21.4", State: clusterservicev1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING, Message: text, StartTime: stamp(12 * time.Minute), Risks: []string{text},
			Components: []*clusterservicev1.ComponentProgress{
				{Name: "etcd", State: clusterservicev1.ComponentState_COMPONENT_STATE_UPDATED, Version: "4.21.4"},
				{Name: "dns-operator", State: clusterservicev1.ComponentState_COMPONENT_STATE_WAITING, Version: "4.20.8", Message: text, Since: stamp(11 * time.Minute)},
				{Name: "kube-apiserver", State: clusterservicev1.ComponentState_COMPONENT_STATE_ROLLING_OUT, Version: "4.20.8", Message: "Waiting for the rollout to finish.", Since: stamp(4 * time.Minute)}}},
		{Kind: clusterservicev1.UpgradeStepKind_UPGRADE_STEP_KIND_NODE_POOL, NodePool: "workers", FromVersion: "4.20.8", ToVersion: "4.21.4", State: clusterservicev1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED}}
	upgrade := &clusterservicev1.Upgrade{Uid: testUpgrade, ClusterUid: testUID, CreateTime: stamp(13 * time.Minute),
		Spec:   &clusterservicev1.UpgradeSpec{Version: "4.21.4", NodePools: clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_ALL, Origin: clusterservicev1.UpgradeOrigin_UPGRADE_ORIGIN_OPERATOR, Actor: &clusterservicev1.Actor{Name: "oncall@example.com", Reason: text, Ticket: "CHG-12"}},
		Status: &clusterservicev1.UpgradeStatus{State: clusterservicev1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, Message: "The control plane is rolling out 4.21.4.", Since: stamp(12 * time.Minute), FromVersion: "4.20.8", Steps: steps, Gates: gates}}
	completed := &clusterservicev1.Upgrade{Uid: "completed", ClusterUid: testUID, CreateTime: stamp(100 * time.Hour), Spec: &clusterservicev1.UpgradeSpec{Version: "4.20.8", Origin: clusterservicev1.UpgradeOrigin_UPGRADE_ORIGIN_POLICY, Policy: "nightly"},
		Status: &clusterservicev1.UpgradeStatus{State: clusterservicev1.UpgradeState_UPGRADE_STATE_COMPLETED, Since: stamp(99 * time.Hour), FromVersion: "4.20.6", CompletionTime: stamp(99 * time.Hour)}}
	policy := &clusterservicev1.UpgradePolicy{Name: "nightly", UpdateTime: stamp(50 * time.Hour), Actor: &clusterservicev1.Actor{Name: "oncall@example.com", Reason: text, Ticket: "CHG-3"},
		Spec: &clusterservicev1.UpgradePolicySpec{ChannelGroups: []string{"stable"}, MinorVersions: []string{"4.20", "4.21"}, MaxConcurrent: 5, NodePools: clusterservicev1.NodePoolFollow_NODE_POOL_FOLLOW_UNPINNED,
			Schedule: &clusterservicev1.UpgradeSchedule{Weekly: []*clusterservicev1.WeeklyWindow{{Days: []string{"SAT", "SUN"}, Start: "22:00", Minutes: 240}}}},
		Status: &clusterservicev1.UpgradePolicyStatus{Open: true, Until: stamp(-time.Hour), Running: 1, Remaining: 12, UpToDate: 97, LeftOut: []*clusterservicev1.LeftOutCluster{{ClusterUid: testUID, ResourceId: cluster.ResourceID, Reason: text}}}}
	list := adminv1.UpgradeList{Items: adminv1.Messages([]*clusterservicev1.Upgrade{upgrade, completed}), NextPageToken: "next & more"}
	for path, response := range map[string]any{
		"/upgrades": list, "/upgrades/" + testUpgrade: adminv1.FleetUpgrade{Of: upgrade}, "/clusters/" + testUID + "/upgrades": list,
		"/clusters/" + testUID + "/upgrade-plan": adminv1.Message[*clusterservicev1.UpgradePlan]{Of: &clusterservicev1.UpgradePlan{ClusterUid: testUID, FromVersion: "4.20.8", ToVersion: "4.21.4", Steps: steps[1:], Gates: gates,
			CurrentUpgradeUid: testUpgrade, Targets: []*clusterservicev1.UpgradeTarget{{Version: "4.21.4", Minor: true, Path: []string{"4.20.12", "4.21.4"}, Risks: []string{text}}, {Version: "4.20.12", Path: []string{"4.20.12"}}}}},
		"/upgrade-policies":                              adminv1.UpgradePolicyList{Items: []adminv1.Message[*clusterservicev1.UpgradePolicy]{{Of: policy}}},
		"/upgrade-policies/nightly":                      adminv1.Message[*clusterservicev1.UpgradePolicy]{Of: policy},
		"POST /clusters/" + testUID + "/upgrades":        f.responses["POST /clusters/"+testUID+"/retry"],
		"PUT /upgrade-policies/nightly":                  f.responses["POST /clusters/"+testUID+"/retry"],
		"POST /upgrades/" + testUpgrade + "/abort":       f.responses["POST /clusters/"+testUID+"/retry"],
		"POST /upgrades/" + testUpgrade + "/pause":       f.responses["POST /clusters/"+testUID+"/retry"],
		"POST /upgrades/" + testUpgrade + "/resume":      f.responses["POST /clusters/"+testUID+"/retry"],
		"DELETE /upgrade-policies/nightly":               f.responses["POST /clusters/"+testUID+"/retry"],
		"POST /upgrades/" + testUpgrade + "/acknowledge": f.responses["POST /clusters/"+testUID+"/retry"],
	} {
		f.responses[path] = response
	}
}

// TestUpgradeIsPlannedBeforeItStarts checks that the plan of a version leads to a form with the same version and the same plan, and that a refused
// plan leads to none.
func TestUpgradeIsPlannedBeforeItStarts(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	tab := "/clusters/" + testUID + "/upgrades?nodePools=all&version=4.21.4"
	start := "/clusters/" + testUID + "/actions/upgrade?nodePools=all&version=4.21.4"
	if page := b.get(tab); !strings.Contains(page.body, `href="`+strings.ReplaceAll(start, "&", "&amp;")+`"`) {
		t.Errorf("the plan does not lead to its form: %s", page.body)
	}
	wanted := adminv1.Root + "/clusters/" + testUID + "/upgrade-plan?nodePools=all&version=4.21.4"
	for _, path := range []string{tab, start} {
		h.api.reads = nil
		page := b.get(path)
		if read := strings.Join(h.api.reads, "\n"); !strings.Contains(read, wanted) {
			t.Errorf("%s does not read the plan: %s", path, read)
		}
		if !strings.Contains(page.body, "node pool workers") || !strings.Contains(page.body, "minor-version") {
			t.Errorf("%s does not show the plan", path)
		}
	}
	form := url.Values{"key": {"K"}, "version": {"4.21.4"}, "nodePools": {"all"}, "notBefore": {"2026-11-24T22:00:00Z"}}
	if response := b.post(start, form); response.location() != "/operations/"+testOperation {
		t.Fatalf("%s: %s", response.Status, response.body)
	}
	want := apiRequest{Method: http.MethodPost, Path: "/clusters/" + testUID + "/upgrades", Key: "K", Person: "oncall@example.com",
		Body: `{"version":"4.21.4","nodePools":"NODE_POOL_FOLLOW_ALL","notBefore":"2026-11-24T22:00:00Z"}`}
	if diff := cmp.Diff([]apiRequest{want}, h.api.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}

	// An acknowledgement overrides a safeguard, which the elevation for the class operate does not permit.
	h.api.requests = nil
	form.Set("acknowledge", "minor-version")
	form.Set("reason", "the customer agreed to 4.21")
	b.post(start, form)
	if len(h.api.requests) == 0 || h.api.requests[0].Path != "/elevations" || !strings.Contains(h.api.requests[0].Body, `"class":"recover"`) {
		t.Errorf("the requests with an acknowledgement are %v", h.api.requests)
	}

	h.api.responses["/clusters/"+testUID+"/upgrade-plan"] = adminv1.Message[*clusterservicev1.UpgradePlan]{Of: &clusterservicev1.UpgradePlan{FromVersion: "4.20.8", ToVersion: "4.21.4",
		Refusals: []*clusterservicev1.UpgradeRefusal{{Rule: "UPGRADE_IN_PROGRESS", Message: "An upgrade is in progress."}}}}
	if page := b.get(tab); strings.Contains(page.body, "/actions/upgrade") || !strings.Contains(page.body, "It would be refused: UPGRADE_IN_PROGRESS") {
		t.Errorf("a refused plan: %s", page.body)
	}
}

// TestPolicyFormKeepsThePolicy checks that the form of a policy has its current values, and that sending it without a change stores the same policy.
func TestPolicyFormKeepsThePolicy(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	h.api.responses["/elevations"] = adminv1.ElevationList{Items: []adminv1.Elevation{{ID: testElevation, Class: adminv1.Operate, Active: true}}}
	b := h.signedIn("oncall@example.com", "/me")
	path := "/upgrade-policies/nightly/actions/apply"
	form := formValues(t, b.get(path).body)
	if response := b.post(path, form); response.location() != "/operations/"+testOperation {
		t.Fatalf("%s: %s", response.Status, response.body)
	}
	got := h.api.requests[0]
	want := `{"spec":{"channelGroups":["stable"],"minorVersions":["4.20","4.21"],"schedule":{"weekly":[{"days":["SAT","SUN"],"start":"22:00","minutes":240}]},"maxConcurrent":5,"nodePools":"NODE_POOL_FOLLOW_UNPINNED"}}`
	if body := strings.ReplaceAll(got.Body, " ", ""); got.Method != http.MethodPut || got.Path != "/upgrade-policies/nightly" || body != want {
		t.Errorf("the request is %s %s %s, want %s", got.Method, got.Path, body, want)
	}
	for name, wrong := range map[string][2]string{
		"a window without minutes": {"weekly", "SAT 22:00"}, "a long window": {"weekly", "SAT 22:00 99999"}, "minutes without cron": {"cronMinutes", "60"}, "no number": {"maxConcurrent", "many"}, "an unknown choice": {"nodePools", "some"},
	} {
		h.api.requests = nil
		changed := formValues(t, b.get(path).body)
		changed.Set(wrong[0], wrong[1])
		if response := b.post(path, changed); response.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(response.body, `aria-invalid="true"`) || len(h.api.requests) > 0 {
			t.Errorf("%s: %s, requests %v", name, response.Status, h.api.requests)
		}
	}
}
