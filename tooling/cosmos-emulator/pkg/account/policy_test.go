package account

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestBuiltInRoles(t *testing.T) {
	p := must.Get(newPolicy(nil, []RoleAssignment{
		{RoleDefinitionID: BuiltInDataReader, PrincipalID: "reader", Scope: "/"},
		{RoleDefinitionID: BuiltInDataContributor, PrincipalID: "Writers", Scope: "/dbs/d"},
	}))(t)
	reads := map[Action]bool{ReadMetadata: true, ReadItem: true, ExecuteQuery: true, ReadChangeFeed: true}
	for _, action := range Actions() {
		at := Scope{"d", "c"}
		if got := p.Of("READER", nil).Allow(action, at); got != reads[action] {
			t.Errorf("reader: %s is %t", action, got)
		}
		if !p.Of("somebody", []string{"other", "writers"}).Allow(action, at) {
			t.Errorf("a member of the group of writers: %s is denied", action)
		}
		for _, other := range []Scope{{}, {"e", ""}, {"e", "c"}} {
			if p.Of("writers", nil).Allow(action, other) {
				t.Errorf("writer of d: %s is allowed at %s", action, other)
			}
		}
		if p.Of("somebody", nil).Allow(action, at) {
			t.Errorf("somebody: %s is allowed", action)
		}
	}
}

func TestScopesAreNotPrefixes(t *testing.T) {
	p := must.Get(newPolicy(nil, []RoleAssignment{{RoleDefinitionID: BuiltInDataContributor, PrincipalID: "p", Scope: "/dbs/d/colls/c"}}))(t)
	for at, want := range map[Scope]bool{{"d", "c"}: true, {"d", "cc"}: false, {"d", ""}: false, {"dd", "c"}: false, {}: false, {"d", "C"}: false} {
		if got := p.Of("p", nil).Allow(ReadItem, at); got != want {
			t.Errorf("%s: %t, want %t", at, got, want)
		}
	}
}

func TestInvalidPoliciesNameTheField(t *testing.T) {
	role := func(change func(*RoleDefinition)) []RoleDefinition {
		r := RoleDefinition{ID: "r", DataActions: []string{string(ReadItem)}}
		change(&r)
		return []RoleDefinition{r}
	}
	keep := func(*RoleDefinition) {}
	for want, test := range map[string]struct {
		definitions []RoleDefinition
		assignment  RoleAssignment
	}{
		"roleDefinitions[0].id is required":           {role(func(r *RoleDefinition) { r.ID = "" }), RoleAssignment{}},
		"roleDefinitions[0].id: " + BuiltInDataReader: {role(func(r *RoleDefinition) { r.ID = BuiltInDataReader }), RoleAssignment{}},
		"roleDefinitions[0].dataActions is required":  {role(func(r *RoleDefinition) { r.DataActions = nil }), RoleAssignment{}},
		"roleDefinitions[0].dataActions[0]":           {role(func(r *RoleDefinition) { r.DataActions = []string{item + "truncate"} }), RoleAssignment{}},
		"roleDefinitions[0].dataActions[0]: \"Micro":  {role(func(r *RoleDefinition) { r.DataActions = []string{account + "*"} }), RoleAssignment{}},
		"roleDefinitions[0].assignableScopes[0]":      {role(func(r *RoleDefinition) { r.AssignableScopes = []string{"dbs/x"} }), RoleAssignment{}},
		"roleAssignments[0].roleDefinitionId":         {nil, RoleAssignment{RoleDefinitionID: "r", PrincipalID: "p", Scope: "/"}},
		"roleAssignments[0].principalId":              {role(keep), RoleAssignment{RoleDefinitionID: "r", Scope: "/"}},
		"roleAssignments[0].scope: \"/colls/x\"":      {role(keep), RoleAssignment{RoleDefinitionID: "r", PrincipalID: "p", Scope: "/colls/x"}},
		"roleAssignments[0].scope: /dbs/e": {role(func(r *RoleDefinition) { r.AssignableScopes = []string{"/dbs/d"} }),
			RoleAssignment{RoleDefinitionID: "r", PrincipalID: "p", Scope: "/dbs/e"}},
	} {
		if _, err := newPolicy(test.definitions, []RoleAssignment{test.assignment}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
}
