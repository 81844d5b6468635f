package rulebook_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/rulebook"
	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// expectedErrors returns the errors that a case expects, as field and message.
func expectedErrors(t *testing.T, c httpcase.Case) [][2]string {
	t.Helper()
	type detail struct{ Target, Message string }
	var found [][2]string
	for _, step := range c.Steps {
		var body struct{ Error json.RawMessage }
		var expected struct {
			detail
			Details []detail
		}
		if step.ExpectedBody == "" || step.ExpectedBody == "empty" {
			continue
		}
		if err := json.Unmarshal([]byte(step.ExpectedBody), &body); err != nil {
			t.Errorf("case %s, step %s: the expected body is not JSON: %v", c.Name, step.Name, err)
		}
		// Steps without an error object expect no error.
		if json.Unmarshal(body.Error, &expected) != nil {
			continue
		}
		for _, one := range append(expected.Details, expected.detail) {
			if one.Message != "" {
				found = append(found, [2]string{one.Target, one.Message})
			}
		}
	}
	return found
}

// TestEveryRuleHasACase: each rule of the tables names cases, and each named case expects the rule's error.
func TestEveryRuleHasACase(t *testing.T) {
	book := must.Get(rulebook.Read("../../docs/validation.md"))(t)
	cases := must.Get(httpcase.Suite{Dir: "../../testdata"}.Load())(t)
	var tests strings.Builder
	for _, file := range []string{"../validation/boundary_child_test.go", "../validation/cluster_test.go", "../validation/issuer_test.go"} {
		source := must.Get(os.ReadFile(file))(t)
		tests.Write(source)
	}
	errors := map[string][][2]string{}
	for _, c := range cases {
		errors[c.Name] = append(expectedErrors(t, c), [2]string{"", ""})
	}
	for _, rule := range book {
		for _, name := range rule.Cases {
			if strings.HasPrefix(name, "Test") {
				// Rules about releases that no region offers, about values that only clusters of earlier releases of the service
				// have, and about what the service chooses cannot have a case; a unit test covers them.
				if !strings.Contains(tests.String(), "func "+name+"(") {
					t.Errorf("rule %s names test %s, which does not exist", rule.ID, name)
				}
				continue
			}
			if errors[name] == nil {
				t.Errorf("rule %s names case %q, which does not exist", rule.ID, name)
				continue
			}
			if !contains(rule, errors[name]) {
				t.Errorf("case %s does not test rule %s: it does not expect %q at %q", name, rule.ID, rule.Message, rule.Field)
			}
		}
	}
}

func contains(rule rulebook.Rule, errors [][2]string) bool {
	for _, one := range errors {
		if rule.Describes(one[0], one[1]) {
			return true
		}
	}
	return false
}
