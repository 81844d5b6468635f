package schemamutation_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/openapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var body map[string]any
	must.Do(t, decoder.Decode(&body))
	return body
}

// TestDocumentsHaveKnownKeywords: no document contains a schema keyword that the package does not know.
func TestDocumentsHaveKnownKeywords(t *testing.T) {
	for _, version := range openapi.Versions() {
		for _, name := range []string{"HcpOpenShiftCluster", "NodePool", "ExternalAuth", "HcpOpenShiftClusterUpdate", "NodePoolUpdate", "ExternalAuthUpdate"} {
			schema, err := schemamutation.Resource(version, name)
			if err != nil {
				t.Error(err)
				continue
			}
			if len(schema.Writable()) < 10 {
				t.Errorf("%s of %s has only %d writable values", name, version, len(schema.Writable()))
			}
		}
	}
	if _, err := schemamutation.Resource(openapi.Versions()[0], "Nothing"); err == nil {
		t.Error("an unknown definition was read")
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

// TestMutations: each constraint is violated just outside its limit and kept at the limit, in a PUT and in a PATCH.
func TestMutations(t *testing.T) {
	body := parse(t, `{"size":5,"words":["A"],"tags":{"x":"y"}}`)
	changes := map[string]schemamutation.Mutation{}
	for _, change := range schema().Mutations(body, schemamutation.Samples{Item: func(string, int) any { return "A" }}) {
		if _, twice := changes[change.String()]; twice {
			t.Errorf("%s is derived twice", change)
		}
		changes[change.String()] = change
	}
	for name, tc := range map[string]struct {
		reason  string
		allowed bool
		body    string
		patch   string
	}{
		"size absent ":              {"a required property is removed", false, `{"words":["A"],"tags":{"x":"y"}}`, `{"size":null}`},
		"size null ":                {"a required property is null", false, `{"size":null,"words":["A"],"tags":{"x":"y"}}`, `{"size":null}`},
		"size range 1":              {"below the minimum", false, `{"size":1,"words":["A"],"tags":{"x":"y"}}`, `{"size":1}`},
		"size range 2":              {"at the minimum", true, `{"size":2,"words":["A"],"tags":{"x":"y"}}`, `{"size":2}`},
		"size type fraction":        {"a fraction is not an integer", false, `{"size":1.5,"words":["A"],"tags":{"x":"y"}}`, `{"size":1.5}`},
		"words absent ":             {"an optional property is removed", true, `{"size":5,"tags":{"x":"y"}}`, `{"words":null}`},
		"words item count too many": {"one item above the maximum", false, `{"size":5,"words":["A","A","A","A"],"tags":{"x":"y"}}`, `{"words":["A","A","A","A"]}`},
		`words[0] enum value "a"`:   {"enumeration values are case-sensitive", false, `{"size":5,"words":["a"],"tags":{"x":"y"}}`, `{"words":["a"]}`},
		"words[0] enum value B":     {"another enumeration value", true, `{"size":5,"words":["B"],"tags":{"x":"y"}}`, `{"words":["B"]}`},
		"tags[x] length 4":          {"a map's value is too long", false, `{"size":5,"words":["A"],"tags":{"x":"aaaa"}}`, `{"tags":{"x":"aaaa"}}`},
		"tags[] key empty":          {"a map's key is empty", false, `{"size":5,"words":["A"],"tags":{"x":"y","":"y"}}`, `{"tags":{"":"y"}}`},
		"state read-only text":      {"a read-only value is sent", true, `{"size":5,"words":["A"],"tags":{"x":"y"},"state":"mine"}`, `{"state":"mine"}`},
		"unknown unknown property ": {"an unknown property is sent", true, `{"size":5,"words":["A"],"tags":{"x":"y"},"unknown":{"a":[1]}}`, `{"unknown":{"a":[1]}}`},
	} {
		change, derived := changes[name]
		if !derived || change.Allowed != tc.allowed {
			t.Errorf("%s: %q is derived: %v, allowed: %v", tc.reason, name, derived, change.Allowed)
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
		t.Errorf("original body (-want +got):\n%s", diff)
	}
}

// TestUncovered: a property that no body has is returned.
func TestUncovered(t *testing.T) {
	s := schema()
	if missing := s.Uncovered(parse(t, `{"size":5,"words":["A"]}`), parse(t, `{"tags":{"x":"y"}}`)); missing != nil {
		t.Errorf("uncovered: %v, want none", missing)
	}
	s.Properties["new"] = &schemamutation.Schema{Type: "boolean"}
	if missing := s.Uncovered(parse(t, `{"size":5,"words":[],"tags":{}}`)); !slices.Equal(missing, []string{"new", "tags[*]", "words[]"}) {
		t.Errorf("uncovered: %v", missing)
	}
}
