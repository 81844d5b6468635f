package rulebook_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/rulebook"
	"github.com/hcpmesh/hcpmesh/internal/testing/httpcase"
)

// shown are the errors that a case expects, as field and message.
func shown(t *testing.T, c httpcase.Case) [][2]string {
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
			t.Errorf("the case %s expects at %s what is no JSON: %v", c.Name, step.Name, err)
		}
		// What is no object says that there is no error.
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

// TestEveryRuleIsShown: each rule of the table names a case, and each case that is named expects its error.
func TestEveryRuleIsShown(t *testing.T) {
	book, err := rulebook.Read("../../docs/validation.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := httpcase.Suite{Dir: "../../testdata"}.Load()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../validation/nodepool_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := string(source)
	errors := map[string][][2]string{}
	for _, c := range cases {
		errors[c.Name] = append(shown(t, c), [2]string{"", ""})
	}
	for _, rule := range book {
		for _, name := range rule.Cases {
			if strings.HasPrefix(name, "Test") {
				// What no region offers today cannot be shown from outside.
				if !strings.Contains(tests, "func "+name+"(") {
					t.Errorf("the rule %s is shown by the test %s, which does not exist", rule.ID, name)
				}
				continue
			}
			if errors[name] == nil {
				t.Errorf("the rule %s is shown by the case %q, which does not exist", rule.ID, name)
				continue
			}
			if !contains(rule, errors[name]) {
				t.Errorf("the case %s does not show the rule %s: it expects no %q at %q", name, rule.ID, rule.Message, rule.Field)
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
