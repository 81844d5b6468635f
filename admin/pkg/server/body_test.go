package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestBodiesAreStrict sends bodies that other parsers would read differently. Each is refused, and the error names the fields.
func TestBodiesAreStrict(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	mustAsk(t, http.StatusCreated, handler, "oncall", "", http.MethodPost, "/elevations", `{"class":"operate","reason":"bodies are tested","ticket":"INC-1","duration":"1h"}`)
	const unknown, twice = "Forbidden: unknown field", "Duplicate value: the field is given more than once"
	for name, tc := range map[string]struct {
		path, body string
		want       map[string]string
	}{
		"given twice":             {"/elevations", `{"class":"operate","reason":"harmless reason","class":"break-glass","ticket":"INC-1","duration":"1h"}`, map[string]string{"class": twice}},
		"in another casing":       {"/elevations", `{"class":"operate","Class":"break-glass","reason":"harmless reason","ticket":"INC-1","duration":"1h"}`, map[string]string{"Class": unknown}},
		"only in another casing":  {"/elevations", `{"CLASS":"break-glass","reason":"harmless reason","ticket":"INC-1","duration":"1h"}`, map[string]string{"CLASS": unknown}},
		"several":                 {"/elevations", `{"class":"operate","class":"operate","REASON":"x","other":1}`, map[string]string{"class": twice, "REASON": unknown, "other": unknown}},
		"key of a map":            {"/silences", `{"alert":"Alert","labels":{"shard":"a","shard":"b"},"duration":"1h","reason":"harmless reason","ticket":"INC-1"}`, map[string]string{"labels.shard": twice}},
		"of an action":            {"/clusters/" + uid + "/pause", `{"duration":"1h","duration":"24h"}`, map[string]string{"duration": twice}},
		"of an action, in casing": {"/clusters/" + uid + "/pause", `{"duration":"1h","Duration":"24h"}`, map[string]string{"Duration": unknown}},
		"wrong type":              {"/elevations", `{"class":1}`, map[string]string{"class": "Invalid value: must be of type adminv1.AccessClass"}},
		"a second object":         {"/elevations", `{"class":"operate"}{"class":"break-glass"}`, map[string]string{"": "The body is not a valid JSON object for this request."}},
		"Cluster Service's field": {"/shards/mgmt-1/drain", `{"name":"a"}`, map[string]string{"name": "Forbidden: the path and the caller's elevation determine it"}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(handler, "oncall", "", http.MethodPost, tc.path, tc.body)
			var failure adminv1.Failure
			must.Do(t, json.Unmarshal(answer.Body.Bytes(), &failure))
			details := failure.Error.Details
			if len(details) == 0 {
				details = []adminv1.FailureDetail{failure.Error}
			}
			got := map[string]string{}
			for _, d := range details {
				got[d.Target] = d.Message
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || answer.Code != http.StatusBadRequest {
				t.Errorf("status %d (-want +got):\n%s", answer.Code, diff)
			}
		})
	}
	// Protobuf's JSON form has two spellings of a field, which are one field.
	for _, body := range []string{`{"acceptNoRoom":true,"accept_no_room":false}`, `{"AcceptNoRoom":true}`} {
		answer := ask(handler, "oncall", "", http.MethodPost, "/shards/mgmt-1/drain", body)
		if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "ccept") {
			t.Errorf("%s: status %d: %s", body, answer.Code, answer.Body)
		}
	}
}

// TestActionsRefuseUndeclaredBodies sends a field that no request has to each action. An action without a declared body refuses every field, and the error
// names the action. The others name the field.
func TestActionsRefuseUndeclaredBodies(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	for _, class := range []string{"operate", "recover"} {
		mustAsk(t, http.StatusCreated, handler, "oncall", "", http.MethodPost, "/elevations", `{"class":"`+class+`","reason":"bodies are tested","ticket":"INC-1","duration":"1h"}`)
	}
	for _, action := range adminv1.Actions() {
		if action.Path == "" {
			continue
		}
		names := "acceptNothing"
		if action.Body == nil {
			names = action.Name + " has no body"
		}
		_, path, _ := action.Request(nil, slices.Repeat([]string{uid}, len(adminv1.Wildcards(action.Path)))...)
		for _, key := range []string{"", "key-of-" + action.Name} {
			answer := ask(handler, "oncall", key, action.Method, path, `{"acceptNothing":true}`)
			if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), names) {
				t.Errorf("%s with the key %q: %d %s, want 400 that names %q", action.Name, key, answer.Code, answer.Body, names)
			}
		}
	}
}

// TestQueriesAreStrict sends queries with a parameter that package url cannot decode, and one that is given twice, to each route. The error names the parameter.
func TestQueriesAreStrict(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	handler := h.another(h.db)
	placeholders := regexp.MustCompile(`\{[^}]*\}`)
	for _, route := range server.Routes() {
		path := placeholders.ReplaceAllString(strings.TrimPrefix(route.Path, adminv1.Root), uid)
		queries := map[string]string{"state=%zz": "state", "a=1&state=Active;shard=x": "state", "%zz": "%zz"}
		for _, parameter := range route.Query {
			queries[parameter.Name+"=1&"+parameter.Name+"=2"] = parameter.Name
		}
		for query, name := range queries {
			answer := ask(handler, "oncall", "", route.Method, path+"?"+query, "")
			if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), fmt.Sprintf(`"target":%q`, name)) {
				t.Errorf("%s with the query %s: %d %s, want 400 that names %s", route.Name, query, answer.Code, answer.Body, name)
			}
		}
	}
}
