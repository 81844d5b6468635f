package feedback_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

const reported = `{"conditions":[{"type":"Applied","status":"True","reason":"AppliedManifestWorkComplete","message":"ok","lastTransitionTime":"2026-11-21T03:00:00Z"},
	{"type":"Available","status":"True"}],
 "resourceStatus":[{"resourceMeta":{"ordinal":0,"kind":"Secret","name":"pull-secret"},"conditions":[{"type":"Applied","status":"True"}]},
  {"resourceMeta":{"ordinal":2,"kind":"HostedCluster","name":"x"},"conditions":[{"type":"Applied","status":"True"}],"statusFeedback":{"values":[
   {"name":"digest","fieldValue":{"type":"String","string":"abc"}},
   {"name":"condition-Available-status","fieldValue":{"type":"String","string":"False"}},
   {"name":"condition-Available-reason","fieldValue":{"type":"String","string":"ComponentsNotAvailable"}},
   {"name":"condition-Available-message","fieldValue":{"type":"String","string":"Waiting for components to be available: a, b"}},
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
		Applied:              feedback.Condition{Status: "True", Reason: "AppliedManifestWorkComplete", Message: "ok"},
		Digest:               "abc",
		Conditions:           map[string]feedback.Condition{"Available": {Status: "False", Reason: "ComponentsNotAvailable", Message: "Waiting for components to be available: a, b"}},
		EndpointHost:         "api.example.test",
		EndpointPort:         443,
		ControlPlaneVersions: []feedback.Release{{Version: "4.21.4", Image: "i", State: "Partial"}},
		Versions:             []feedback.Release{{Version: "4.21.1", Image: "j", State: "Completed"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDecodeOddities(t *testing.T) {
	tests := map[string]struct {
		reason, body string
		want         *feedback.Observed
	}{
		"Empty":   {"no status yet", `{}`, &feedback.Observed{}},
		"Deleted": {"the end of a work", `{"conditions":[{"type":"Deleted","status":"True"}]}`, &feedback.Observed{Deleted: true}},
		"Refused manifest": {"the manifest's own message says what was refused",
			`{"conditions":[{"type":"Applied","status":"False","reason":"Failed","message":"1 of 2"}],"resourceStatus":[{"resourceMeta":{"kind":"HostedCluster","name":"x"},"conditions":[{"type":"Applied","status":"False","message":"spec.services: Invalid"}]}]}`,
			&feedback.Observed{Applied: feedback.Condition{Status: "False", Reason: "Failed", Message: "HostedCluster x: spec.services: Invalid"}}},
		"Other types": {"a value of another type is absent",
			`{"resourceStatus":[{"statusFeedback":{"values":[{"name":"digest","fieldValue":{"type":"Integer","integer":1}},{"name":"endpointPort","fieldValue":{"type":"String","string":"443"}},{"name":"versions","fieldValue":{"type":"JsonRaw","jsonRaw":"[["}},{"name":"condition-","fieldValue":{}},{"name":"condition-A-other","fieldValue":{}}]}}]}`,
			&feedback.Observed{Conditions: map[string]feedback.Condition{}}},
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

// FuzzDecode feeds what a management cluster might send. What is read must survive being stored and read again, for that
// is how it is kept.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(reported))
	f.Add([]byte(`{"conditions":null,"resourceStatus":[{"statusFeedback":{"values":[{"name":"condition-X-message","fieldValue":{"string":"\u0000\ud800"}}]}}]}`))
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
