package validation_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestResolve(t *testing.T) {
	cases := map[string]struct {
		reason, object, want string
		unknown              validation.Unknown
	}{
		"literals":   {reason: "other values are kept", object: `{"a":"[","b":"]","c":"[x","d":1,"e":null,"f":""}`, want: `{"a":"[","b":"]","c":"[x","d":1,"e":null,"f":""}`},
		"field":      {reason: "an expression is removed", object: `{"a":{"b":"[x()]","c":1}}`, want: `{"a":{"c":1}}`, unknown: validation.Unknown{"a.b"}},
		"escaped":    {reason: "two brackets are an escaped literal", object: `{"a":"[[x]"}`, want: `{"a":"[x]"}`},
		"tag":        {reason: "the path of a tag has the form of violations", object: `{"tags":{"a.b":"[x()]"}}`, want: `{"tags":{}}`, unknown: validation.Unknown{"tags[a.b]"}},
		"name":       {reason: "an unknown name makes its object unknown", object: `{"identity":{"userAssignedIdentities":{"[x()]":{},"y":{}}}}`, want: `{"identity":{"userAssignedIdentities":{"y":{}}}}`, unknown: validation.Unknown{"identity.userAssignedIdentities"}},
		"in a list":  {reason: "objects in a list keep their indices", object: `{"l":[{"a":"[x()]"},{"a":"y"}]}`, want: `{"l":[{},{"a":"y"}]}`, unknown: validation.Unknown{"l[0].a"}},
		"of a list":  {reason: "a list with an unknown element is unknown", object: `{"l":["a","[x()]"]}`, want: `{}`, unknown: validation.Unknown{"l"}},
		"list field": {reason: "the same applies to nested lists", object: `{"l":[["[x()]"]]}`, want: `{}`, unknown: validation.Unknown{"l"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var object, want map[string]any
			must.Do(t, errors.Join(json.Unmarshal([]byte(tc.object), &object), json.Unmarshal([]byte(tc.want), &want)))
			unknown := validation.ResolveExpressions(object)
			if diff := cmp.Diff(tc.unknown, unknown); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(want, object); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestUnknownCovers(t *testing.T) {
	unknown := validation.Unknown{"properties.network", "tags[a]"}
	for field, want := range map[string]bool{
		"properties.network": true, "properties.network.podCidr": true, "properties": true, "tags": true, "tags[a]": true,
		"properties.networking": false, "tags[b]": false, "location": false,
	} {
		if got := unknown.Covers(field); got != want {
			t.Errorf("%s: %v", field, got)
		}
	}
}

// FuzzResolve: the resolved object contains no names that are expressions, and no values except escaped literals that look
// like one.
func FuzzResolve(f *testing.F) {
	f.Add([]byte(`{"a":["[x()]",{"[y]":"[[z]"}],"tags":{"k":"[v]"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var object map[string]any
		if json.Unmarshal(content, &object) != nil {
			return
		}
		validation.ResolveExpressions(object)
		var check func(value any)
		check = func(value any) {
			switch value := value.(type) {
			case map[string]any:
				for name, field := range value {
					if validation.IsExpression(name) {
						t.Fatalf("the name %q is left", name)
					}
					check(field)
				}
			case []any:
				for _, element := range value {
					check(element)
				}
			case string:
				if validation.IsExpression(value) && !strings.Contains(string(content), "[") {
					t.Fatalf("the expression %q came from nowhere", value)
				}
			}
		}
		check(object)
	})
}
