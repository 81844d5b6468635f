package feedback_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

const reported = `{"conditions":[{"type":"Applied","status":"True","reason":"AppliedManifestWorkComplete","message":"ok","lastTransitionTime":"2026-11-21T03:00:00Z"},
	{"type":"Available","status":"True"}],
 "resourceStatus":[{"resourceMeta":{"ordinal":0,"kind":"Secret","name":"pull-secret"},"conditions":[{"type":"Applied","status":"True"}]},
  {"resourceMeta":{"ordinal":2,"kind":"HostedCluster","name":"x"},"conditions":[{"type":"Applied","status":"True"}],"statusFeedback":{"values":[
   {"name":"digest","fieldValue":{"type":"String","string":"abc"}},
   {"name":"conditions","fieldValue":{"type":"JsonRaw","jsonRaw":"[{\"type\":\"Available\",\"status\":\"False\",\"reason\":\"ComponentsNotAvailable\",\"message\":\"Waiting for components to be available: a, b\"},{\"type\":\"ReconciliationSucceeded\",\"status\":\"True\",\"observedGeneration\":7},{\"type\":\"ValidHostedControlPlaneConfiguration\",\"status\":\"True\",\"observedGeneration\":6},{\"type\":\"EtcdAvailable\",\"status\":\"True\"}]"}},
   {"name":"endpointHost","fieldValue":{"type":"String","string":"api.example.test"}},
   {"name":"endpointPort","fieldValue":{"type":"Integer","integer":443}},
   {"name":"controlPlaneVersions","fieldValue":{"type":"JsonRaw","jsonRaw":"[{\"state\":\"Partial\",\"version\":\"4.21.4\",\"image\":\"i\",\"startedTime\":\"t\"}]"}},
   {"name":"versions","fieldValue":{"type":"JsonRaw","jsonRaw":"{\"state\":\"Completed\",\"version\":\"4.21.1\",\"image\":\"j\"}"}}]}}]}`

func TestDecode(t *testing.T) {
	got, err := feedback.Decode([]byte(reported))
	if err != nil {
		t.Fatal(err)
	}
	want := &feedback.Observed{
		Applied: feedback.Condition{Status: "True", Reason: "AppliedManifestWorkComplete", Message: "ok", Since: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)},
		Digest:  "abc",
		Conditions: map[string]feedback.Condition{"Available": {Status: "False", Reason: "ComponentsNotAvailable", Message: "Waiting for components to be available: a, b"},
			"ReconciliationSucceeded": {Status: "True"}, "ValidHostedControlPlaneConfiguration": {Status: "True"}, "EtcdAvailable": {Status: "True"}},
		ActedOn: 7, ConfigurationGeneration: 6,
		EndpointHost:         "api.example.test",
		EndpointPort:         443,
		ControlPlaneVersions: []feedback.Release{{Version: "4.21.4", Image: "i", State: "Partial"}},
		Versions:             []feedback.Release{{Version: "4.21.1", Image: "j", State: "Completed"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeLeavesOutWhatItCannotRead(t *testing.T) {
	tests := map[string]struct {
		reason, body string
		want         *feedback.Observed
	}{
		"Empty":   {"no status yet", `{}`, &feedback.Observed{}},
		"Deleted": {"all manifests are deleted", `{"conditions":[{"type":"Deleted","status":"True"}]}`, &feedback.Observed{Deleted: true}},
		"Refused manifest": {"the manifest's own message names the refused object",
			`{"conditions":[{"type":"Applied","status":"False","reason":"Failed","message":"1 of 2"}],"resourceStatus":[{"resourceMeta":{"kind":"HostedCluster","name":"x"},"conditions":[{"type":"Applied","status":"False","message":"spec.services: Invalid"}]}]}`,
			&feedback.Observed{Applied: feedback.Condition{Status: "False", Reason: "Failed", Message: "HostedCluster x: spec.services: Invalid"}}},
		"Permanently refused": {"the fields and the version identify what a person must change",
			`{"conditions":[{"type":"Applied","status":"False"}],"resourceStatus":[{"resourceMeta":{"kind":"NodePool","name":"x"},"conditions":[{"type":"Applied","status":"False","message":"no","observedGeneration":3},{"type":"Refused","status":"True","reason":"Invalid","message":"spec.replicas spec.platform.azure.vmSize\nNodePool x is invalid","observedGeneration":3}]}]}`,
			&feedback.Observed{Applied: feedback.Condition{Status: "False", Message: "NodePool x: no"}, Refusal: &feedback.Refusal{Reason: "Invalid", Kind: "NodePool", Name: "x",
				Fields: []string{"spec.replicas", "spec.platform.azure.vmSize"}, Message: "NodePool x is invalid", Version: 3}}},
		"Foreign fields": {"those of HyperShift are left out, and the pause is never cut off",
			`{"resourceStatus":[{"resourceMeta":{"kind":"HostedCluster","name":"x"},"statusFeedback":{"values":[{"name":"foreignFields","fieldValue":{"type":"String","string":"[{\"path\":\"spec.a\",\"manager\":\"m\"},{\"path\":\"spec.b\",\"manager\":\"hypershift-operator-manager\"},{\"path\":\"status.c\",\"manager\":\"m\"},{\"path\":\"spec.pausedUntil\",\"manager\":\"kubectl-edit\",\"value\":\"true\"}]"}}]}}]}`,
			&feedback.Observed{ForeignFields: []maestroapi.ForeignField{{Path: "spec.pausedUntil", Manager: "kubectl-edit", Value: "true"}, {Path: "spec.a", Manager: "m"}}}},
		"Malformed foreign fields": {"the report is not JSON",
			`{"resourceStatus":[{"resourceMeta":{"kind":"HostedCluster","name":"x"},"statusFeedback":{"values":[{"name":"foreignFields","fieldValue":{"type":"String","string":"x"}}]}}]}`, &feedback.Observed{}},
		"Earlier version refused": {"the version that was not applied may be accepted by a retry",
			`{"conditions":[{"type":"Applied","status":"False"}],"resourceStatus":[{"resourceMeta":{"kind":"NodePool","name":"x"},"conditions":[{"type":"Applied","status":"False","message":"no","observedGeneration":4},{"type":"Refused","status":"True","reason":"Invalid","message":"\nno","observedGeneration":3}]}]}`,
			&feedback.Observed{Applied: feedback.Condition{Status: "False", Message: "NodePool x: no"}}},
		"Refused and applied": {"an earlier refusal does not count",
			`{"conditions":[{"type":"Applied","status":"True"}],"resourceStatus":[{"resourceMeta":{"kind":"NodePool","name":"x"},"conditions":[{"type":"Applied","status":"True","observedGeneration":3},{"type":"Refused","status":"True","reason":"Invalid","message":"\nno","observedGeneration":3}]}]}`,
			&feedback.Observed{Applied: feedback.Condition{Status: "True"}}},
		"Other types": {"a value of another type is absent",
			`{"resourceStatus":[{"statusFeedback":{"values":[{"name":"digest","fieldValue":{"type":"Integer","integer":1}},{"name":"endpointPort","fieldValue":{"type":"String","string":"443"}},{"name":"versions","fieldValue":{"type":"JsonRaw","jsonRaw":"[["}},{"name":"conditions","fieldValue":{"type":"String","string":"[]"}},{"name":"unknown","fieldValue":{}}]}}]}`,
			&feedback.Observed{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := feedback.Decode([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestConditions(t *testing.T) {
	available := map[string]feedback.Condition{"Available": {Status: "True", Reason: "AsExpected"}}
	const entry = `{"type":"Available","status":"True","reason":"AsExpected"}`
	tests := map[string]struct {
		reason, raw string
		want        map[string]feedback.Condition
	}{
		"List":            {"agents report the list", "[" + entry + "]", available},
		"Only entry":      {"an agent may report the only entry of a list without the list", entry, available},
		"Malformed entry": {"an entry of another type does not hide the others", `[{"type":"Degraded","status":true},7,null,` + entry + "]", available},
		"Same type twice": {"the first of one type counts", "[" + entry + `,{"type":"Available","status":"False"}]`, available},
		"Unknown type":    {"nothing reads it", `[{"type":"SupportedHostedCluster","status":"True"}]`, nil},
		"Part": {"the reason is sufficient", `[{"type":"EtcdAvailable","status":"False","reason":"EtcdWaitingForQuorum","message":"m"}]`,
			map[string]feedback.Condition{"EtcdAvailable": {Status: "False", Reason: "EtcdWaitingForQuorum"}}},
		"Failing operators": {"the message names them", `[{"type":"ClusterVersionSucceeding","status":"False","reason":"ClusterOperatorsNotAvailable","message":"Cluster operators dns, ingress are not available"}]`,
			map[string]feedback.Condition{"ClusterVersionSucceeding": {Status: "False", Reason: "ClusterOperatorsNotAvailable", Message: "Cluster operators dns, ingress are not available"}}},
		"Succeeding version": {"its message changes with each release", `[{"type":"ClusterVersionSucceeding","status":"True","reason":"FromClusterVersion","message":"m"}]`,
			map[string]feedback.Condition{"ClusterVersionSucceeding": {Status: "True", Reason: "FromClusterVersion"}}},
		"Time": {"requests wait for the condition", `[{"type":"Available","status":"True","reason":"AsExpected","lastTransitionTime":"2026-01-01T12:00:00+02:00"}]`,
			map[string]feedback.Condition{"Available": {Status: "True", Reason: "AsExpected", Since: time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)}}},
		"Malformed time": {"it is absent", `[{"type":"Available","status":"True","reason":"AsExpected","lastTransitionTime":"10:00"}]`, available},
		"Time of another": {"nothing reads it", `[{"type":"Degraded","status":"False","lastTransitionTime":"2026-01-01T10:00:00Z"}]`,
			map[string]feedback.Condition{"Degraded": {Status: "False"}}},
		"Beyond the limit": {"the number of entries is bounded",
			"[" + strings.Repeat(`{"type":"X"},`, 1000) + entry + "]", nil},
		"Long texts": {"each text is bounded", `[{"type":"Available","status":"True","reason":"` + strings.Repeat("r", 2000) + `","message":"` + strings.Repeat("m", 2000) + `"}]`,
			map[string]feedback.Condition{"Available": {Status: "True", Reason: strings.Repeat("r", 1024), Message: strings.Repeat("m", 1024)}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			observed := decode(t, map[string]any{"name": "conditions", "fieldValue": map[string]any{"type": "JsonRaw", "jsonRaw": tc.raw}})
			if diff := cmp.Diff(tc.want, observed.Conditions); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzDecode decodes arbitrary status events. The result is stored as JSON, so storing and reading it must not change it.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(reported))
	f.Add([]byte(`{"conditions":null,"resourceStatus":[{"statusFeedback":{"values":[{"name":"conditions","fieldValue":{"jsonRaw":"[{\"type\":\"Available\",\"message\":\"\\u0000\\ud800\"}]"}}]}}]}`))
	f.Add([]byte(`{"resourceStatus":[{"resourceMeta":{"kind":"ControlPlaneComponent","name":"etcd"},"statusFeedback":{"values":[{"name":"conditions","fieldValue":{"jsonRaw":"{\"type\":\"RolloutComplete\",\"status\":\"True\"}"}},{"name":"finalizers","fieldValue":{"jsonRaw":"\"a\""}}]}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		observed, err := feedback.Decode(body)
		if err != nil {
			return
		}
		stored, err := json.Marshal(observed)
		if err != nil {
			t.Fatal(err)
		}
		var again feedback.Observed
		if err := json.Unmarshal(stored, &again); err != nil {
			t.Fatal(err)
		}
		twice, err := json.Marshal(&again)
		if err != nil {
			t.Fatal(err)
		}
		if string(stored) != string(twice) {
			t.Errorf("stored %s, read and stored again %s", stored, twice)
		}
	})
}
