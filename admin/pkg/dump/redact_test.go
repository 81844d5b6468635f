package dump

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRedactManifest(t *testing.T) {
	cases := map[string]struct{ reason, manifest, want string }{
		"secret":      {"keys stay, values go", `{"kind":"Secret","metadata":{"name":"s"},"data":{"a":"eA=="},"stringData":{"b":"x"}}`, `{"data":{"a":"(removed)"},"kind":"Secret","metadata":{"name":"s"},"stringData":{"b":"(removed)"}}`},
		"odd secret":  {"data of another shape goes as a whole", `{"kind":"Secret","data":"x"}`, `{"data":"(removed)","kind":"Secret"}`},
		"list":        {"a list may hold secrets", `{"kind":"List","items":[{"kind":"Secret","data":{"a":"x"}}]}`, `{"items":[{"data":{"a":"(removed)"},"kind":"Secret"}],"kind":"List"}`},
		"annotation":  {"kubectl's copy of an object goes", `{"kind":"ConfigMap","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`, `{"kind":"ConfigMap","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"(removed)"}}}`},
		"config map":  {"what is no secret stays", `{"data":{"a":"x"},"kind":"ConfigMap"}`, `{"data":{"a":"x"},"kind":"ConfigMap"}`},
		"not JSON":    {"what cannot be read is not shown", `secret`, `"(removed)"`},
		"not objects": {"nor what is no object", `["secret"]`, `"(removed)"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := string(redactManifest(json.RawMessage(tc.manifest))); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// FuzzRedactManifest checks that the result contains no value of a Secret.
func FuzzRedactManifest(f *testing.F) {
	f.Add("a", "hunter2hunter2")
	f.Add("stringData", "hunter2hunter2")
	f.Fuzz(func(t *testing.T, key, value string) {
		if len(value) < 12 || strings.Contains(key, value) {
			return // what is this short may stand anywhere
		}
		manifest, err := json.Marshal(map[string]any{"kind": "Secret", "data": map[string]any{key: value, key + "2": map[string]any{key: value}}})
		if err != nil {
			t.Skip()
		}
		encoded, _ := json.Marshal(value)
		if got := redactManifest(manifest); strings.Contains(string(got), string(encoded[1:len(encoded)-1])) {
			t.Errorf("%s shows %q", got, value)
		}
	})
}
