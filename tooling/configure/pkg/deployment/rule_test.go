package deployment

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

func check(t *testing.T, assert, values string) string {
	t.Helper()
	rules := must.Get(parseRules([]byte("rules: [{name: r, scope: region, keys: [a.b, c], reason: why, assert: \""+assert+"\"}]"), []string{"a", "c"}))(t)
	root, problems := document.Parse(document.Origin{Layer: "region", File: "f.yaml"}, []byte(values))
	if problems != nil {
		t.Fatal(problems)
	}
	return checkRules(rules, root, false).Error()
}

func TestCheck(t *testing.T) {
	for reason, c := range map[string]struct{ assert, values, want string }{
		"a rule that holds":     {"a.b < c", "a: {b: 1}\nc: 2", ""},
		"a broken rule":         {"a.b > c", "a: {b: 1}\nc: 2", "f.yaml:1: a.b: breaks the rule r: why; a.b is 1 (f.yaml:1), c is 2 (f.yaml:2) (layer region)"},
		"a missing key":         {"a.x > c", "a: {b: 1}\nc: 2", "cannot be evaluated"},
		"a missing variable":    {"c == null", "a: {b: 1}", ""},
		"a key of nothing":      {"c.d == 1", "a: {b: 1}", "cannot be evaluated"},
		"a contained range":     {"cidrContains(a.b, c)", "a: {b: 10.0.0.0/8}\nc: 10.1.0.0/16", ""},
		"a range outside":       {"cidrContains(a.b, c)", "a: {b: 10.0.0.0/8}\nc: 11.1.0.0/16", "breaks the rule"},
		"a larger range":        {"cidrContains(a.b, c)", "a: {b: 10.0.0.0/16}\nc: 10.0.0.0/8", "breaks the rule"},
		"overlapping ranges":    {"!cidrsOverlap(a.b, c)", "a: {b: 10.0.0.0/8}\nc: 10.1.0.0/16", "breaks the rule"},
		"a range with host":     {"cidrsOverlap(a.b, c)", "a: {b: 10.0.0.1/8}\nc: 10.1.0.0/16", "is not an address range"},
		"an expensive rule":     {"a.b.all(x, a.b.all(y, a.b.all(z, x + y + z > 0)))", "a: {b: [" + strings.Repeat("1,", 99) + "1]}\nc: 1", "cannot be evaluated"},
		"a result without bool": {"a.b", "a: {b: 1}\nc: 1", "breaks the rule"},
	} {
		if got := check(t, c.assert, c.values); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", reason, got, c.want)
		}
	}
}

func TestParseRejectsWrongRules(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{name: r}]": "are required",
		"rules: [{name: r, scope: region, keys: [a], reason: why, assert: 'b'}]":                                                                      "undeclared reference",
		"rules: [{name: r, scope: region, keys: [a], reason: why, assert: '1'}]":                                                                      "must be bool",
		"rules: [{name: r, scope: planet, keys: [a], reason: why, assert: 'true'}]":                                                                   "is not region or stamp",
		"rules: [{name: r, scope: region, keyes: [a], reason: why, assert: 'true'}]":                                                                  "keyes",
		"rules: [{name: r, scope: region, keys: [a], reason: why, assert: 'true'}, {name: r, scope: region, keys: [a], reason: why, assert: 'true'}]": "appears twice",
	} {
		if _, err := parseRules([]byte(text), []string{"a"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
