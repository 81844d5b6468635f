package access_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

func TestLoad(t *testing.T) {
	cases := map[string]struct{ reason, content, want string }{
		"roles":                {"groups by role", "groups: {reader: [a], break-glass: [b]}", ""},
		"empty":                {"nobody may do anything", "", ""},
		"unknown role":         {"a role is one that there is", "groups: {boss: [a]}", "unknown role"},
		"unknown field":        {"a field is one that there is", "group: {}", "group"},
		"empty group":          {"a group has an id", `groups: {reader: [""]}`, "empty"},
		"app roles":            {"app roles by role", "appRoles: {operator: [Clusters.Operate]}", ""},
		"unknown app role":     {"a role is one that there is", "appRoles: {boss: [a]}", "appRoles.boss"},
		"conditions":           {"claims by role", "conditions: {break-glass: {authenticationMethods: [mfa], authenticationContext: c1, device: true}}", ""},
		"condition of readers": {"nobody elevates to reader", "conditions: {reader: {device: true}}", "conditions.reader"},
		"unknown condition":    {"a claim is one that is checked", "conditions: {operator: {location: home}}", "location"},
		"empty method":         {"no method is not a method", `conditions: {operator: {authenticationMethods: [""]}}`, "authenticationMethods"},
		"plain URI":            {"a person signs in over TLS", "authorizationURI: http://login.example.com", "authorizationURI"},
		"quoted URI":           {"the URI is quoted in a header", `authorizationURI: 'https://login.example.com/"'`, "authorizationURI"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "roles.yaml")
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := access.Load(file)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestRoles(t *testing.T) {
	config := &access.Config{Groups: map[adminv1.Role][]string{adminv1.Reader: {"readers"}, adminv1.Operator: {"operators"}, adminv1.BreakGlass: {"experts", "others"}}}
	cases := map[string]struct {
		reason string
		groups []string
		want   []adminv1.Role
	}{
		"guest":     {"no group of ours gives nothing", []string{"x"}, nil},
		"reader":    {"the least", []string{"x", "readers"}, []adminv1.Role{adminv1.Reader}},
		"operator":  {"a role includes those below it", []string{"operators"}, []adminv1.Role{adminv1.Reader, adminv1.Operator}},
		"several":   {"the most that any group gives", []string{"readers", "others"}, []adminv1.Role{adminv1.Reader, adminv1.Operator, adminv1.BreakGlass}},
		"in casing": {"ids of groups have no casing", []string{"EXPERTS"}, []adminv1.Role{adminv1.Reader, adminv1.Operator, adminv1.BreakGlass}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := config.Roles(authn.Caller{Groups: tc.groups}); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
	for _, pair := range []struct {
		has, wanted adminv1.Role
		enough      bool
	}{{adminv1.Operator, adminv1.Reader, true}, {adminv1.Operator, adminv1.Operator, true}, {adminv1.Operator, adminv1.BreakGlass, false}, {"boss", adminv1.Reader, false}, {adminv1.BreakGlass, "boss", false}} {
		if access.Includes(pair.has, pair.wanted) != pair.enough {
			t.Errorf("that %s is enough for %s should be %v", pair.has, pair.wanted, pair.enough)
		}
	}
}
