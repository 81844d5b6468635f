package schemamutation_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/openapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var body map[string]any
	if err := decoder.Decode(&body); err != nil {
		t.Fatal(err)
	}
	return body
}

// TestEveryDocumentIsRead: no document has a constraint that the package does not know.
func TestEveryDocumentIsRead(t *testing.T) {
	for _, version := range openapi.Versions() {
		for _, name := range []string{"HcpOpenShiftCluster", "NodePool", "ExternalAuth", "HcpOpenShiftClusterUpdate", "NodePoolUpdate", "ExternalAuthUpdate"} {
			schema, err := schemamutation.Resource(version, name)
			if err != nil {
				t.Error(err)
				continue
			}
			if len(schema.Writable()) < 10 {
				t.Errorf("%s of %s has only %d values to write", name, version, len(schema.Writable()))
			}
		}
	}
	if _, err := schemamutation.Resource(openapi.Versions()[0], "Nothing"); err == nil {
		t.Error("a definition that there is none of was read")
	}
}

func schema() *schemamutation.Schema {
	two, nine, three := int64(2), int64(9), 3
	return &schemamutation.Schema{Type: "object", Required: []string{"size"}, Properties: map[string]*schemamutation.Schema{
		"size":  {Type: "integer", Minimum: &two, Maximum: &nine, CreateOnly: true},
		"state": {Type: "string", ReadOnly: true},
		"words": {Type: "array", MaxItems: &three, Items: &schemamutation.Schema{Type: "string", Enum: []string{"A", "B"}}},
		"tags":  {Type: "object", Values: &schemamutation.Schema{Type: "string", MaxLength: &three}},
	}}
}

// TestDerive: each constraint is broken just outside and kept just at the edge, at its place, in a PUT and in a PATCH.
func TestDerive(t *testing.T) {
	body := parse(t, `{"size":5,"words":["A"],"tags":{"x":"y"}}`)
	changes := map[string]schemamutation.Mutation{}
	for _, change := range schema().Mutations(body, schemamutation.Samples{Item: func(string, int) any { return "A" }}) {
		if _, twice := changes[change.String()]; twice {
			t.Errorf("%s stands twice", change)
		}
		changes[change.String()] = change
	}
	for name, tc := range map[string]struct {
		reason  string
		allowed bool
		body    string
		patch   string
	}{
		"size absent ":         {"a required property is taken away", false, `{"words":["A"],"tags":{"x":"y"}}`, `{"size":null}`},
		"size null ":           {"or made null", false, `{"size":null,"words":["A"],"tags":{"x":"y"}}`, `{"size":null}`},
		"size bound 1":         {"just outside", false, `{"size":1,"words":["A"],"tags":{"x":"y"}}`, `{"size":1}`},
		"size bound 2":         {"just at the bound", true, `{"size":2,"words":["A"],"tags":{"x":"y"}}`, `{"size":2}`},
		"size type fraction":   {"a fraction is no integer", false, `{"size":1.5,"words":["A"],"tags":{"x":"y"}}`, `{"size":1.5}`},
		"words absent ":        {"an optional property is taken away", true, `{"size":5,"tags":{"x":"y"}}`, `{"words":null}`},
		"words count too many": {"one more than there may be", false, `{"size":5,"words":["A","A","A","A"],"tags":{"x":"y"}}`, `{"words":["A","A","A","A"]}`},
		`words[0] word "a"`:    {"a word has a casing", false, `{"size":5,"words":["a"],"tags":{"x":"y"}}`, `{"words":["a"]}`},
		"words[0] word B":      {"another word", true, `{"size":5,"words":["B"],"tags":{"x":"y"}}`, `{"words":["B"]}`},
		"tags[x] length 4":     {"a map's value has a length", false, `{"size":5,"words":["A"],"tags":{"x":"aaaa"}}`, `{"tags":{"x":"aaaa"}}`},
		"tags[] key empty":     {"a map's key is something", false, `{"size":5,"words":["A"],"tags":{"x":"y","":"y"}}`, `{"tags":{"":"y"}}`},
		"state read-only text": {"what is the service's is said", true, `{"size":5,"words":["A"],"tags":{"x":"y"},"state":"mine"}`, `{"state":"mine"}`},
		"surprise unknown ":    {"nobody knows it", true, `{"size":5,"words":["A"],"tags":{"x":"y"},"surprise":{"a":[1]}}`, `{"surprise":{"a":[1]}}`},
	} {
		change, there := changes[name]
		if !there || change.Allowed != tc.allowed {
			t.Errorf("%s: %q is derived: %v, allowed: %v", tc.reason, name, there, change.Allowed)
			continue
		}
		if diff := cmp.Diff(parse(t, tc.body), change.Apply(body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		patch, _ := change.Patch(body)
		if diff := cmp.Diff(parse(t, tc.patch), patch); diff != "" {
			t.Errorf("%s, as a patch (-want +got):\n%s", tc.reason, diff)
		}
	}
	if diff := cmp.Diff(parse(t, `{"size":5,"words":["A"],"tags":{"x":"y"}}`), body); diff != "" {
		t.Errorf("the body was changed (-want +got):\n%s", diff)
	}
}

// TestMissing: a property that no body has is found out.
func TestMissing(t *testing.T) {
	s := schema()
	if missing := s.Uncovered(parse(t, `{"size":5,"words":["A"]}`), parse(t, `{"tags":{"x":"y"}}`)); missing != nil {
		t.Errorf("%v are said to be missing", missing)
	}
	s.Properties["new"] = &schemamutation.Schema{Type: "boolean"}
	if missing := s.Uncovered(parse(t, `{"size":5,"words":[],"tags":{}}`)); !slices.Equal(missing, []string{"new", "tags[*]", "words[]"}) {
		t.Errorf("%v are missing", missing)
	}
}
