package access_test

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// TestClaimsAreRequired checks each required claim alone. A refusal is a 401 that names the missing claims, with Entra's claims
// challenge.
func TestClaimsAreRequired(t *testing.T) {
	config := &access.Config{Conditions: map[adminv1.Role]access.Condition{
		adminv1.BreakGlass: {AuthenticationMethods: []string{"mfa"}, AuthenticationContext: "c1", Device: true}}}
	complete := authn.Caller{ObjectID: "o", AuthenticationMethods: []string{"pwd", "mfa"}, AuthenticationContexts: []string{"c1", "c2"}, DeviceID: "d"}
	for name, tc := range map[string]struct {
		change func(*authn.Caller)
		role   adminv1.Role
		// named is in the message, claims is the decoded claims request.
		named  string
		claims string
	}{
		"complete":           {func(*authn.Caller) {}, adminv1.BreakGlass, "", ""},
		"another role":       {func(c *authn.Caller) { *c = authn.Caller{} }, adminv1.Operator, "", ""},
		"no MFA":             {func(c *authn.Caller) { c.AuthenticationMethods = []string{"pwd"} }, adminv1.BreakGlass, "amr=mfa", `{"access_token":{"amr":{"essential":true,"value":"mfa"}}}`},
		"no context":         {func(c *authn.Caller) { c.AuthenticationContexts = nil }, adminv1.BreakGlass, "acrs=c1", `{"access_token":{"acrs":{"essential":true,"value":"c1"}}}`},
		"another context":    {func(c *authn.Caller) { c.AuthenticationContexts = []string{"c11"} }, adminv1.BreakGlass, "acrs=c1", `{"access_token":{"acrs":{"essential":true,"value":"c1"}}}`},
		"no device":          {func(c *authn.Caller) { c.DeviceID = "" }, adminv1.BreakGlass, "deviceid", `{"access_token":{"deviceid":{"essential":true}}}`},
		"method in capitals": {func(c *authn.Caller) { c.AuthenticationMethods = []string{"MFA"} }, adminv1.BreakGlass, "amr=mfa", `{"access_token":{"amr":{"essential":true,"value":"mfa"}}}`},
		"none": {func(c *authn.Caller) { *c = authn.Caller{ObjectID: "o"} }, adminv1.BreakGlass, "acrs=c1, amr=mfa, deviceid",
			`{"access_token":{"acrs":{"essential":true,"value":"c1"},"amr":{"essential":true,"value":"mfa"},"deviceid":{"essential":true}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			caller := complete
			tc.change(&caller)
			err := config.CheckClaims(caller, tc.role)
			if tc.named == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e := apierror.As(err); e.Kind != apierror.Unauthenticated || !strings.Contains(e.Message, tc.named) || !strings.Contains(e.Message, "break-glass") {
				t.Errorf("got %v, want an error that names %s", err, tc.named)
			}
			parts := regexp.MustCompile(`^Bearer realm="", authorization_uri="(https://[^"]+)", error="insufficient_claims", claims="([^"]+)"$`).FindStringSubmatch(authn.Challenge(err))
			if parts == nil {
				t.Fatalf("the challenge is %s", authn.Challenge(err))
			}
			content, err := base64.StdEncoding.DecodeString(parts[2])
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if json.Unmarshal(content, &got) != nil || json.Unmarshal([]byte(tc.claims), &want) != nil || !cmp.Equal(got, want) {
				t.Errorf("the claims request is %s, want %s", content, tc.claims)
			}
		})
	}
}

// TestRolesOfAppRoles checks that app roles give roles, alone and besides groups, and that their case matters.
func TestRolesOfAppRoles(t *testing.T) {
	config := &access.Config{Groups: map[adminv1.Role][]string{adminv1.Reader: {"readers"}}, AppRoles: map[adminv1.Role][]string{adminv1.Operator: {"Clusters.Operate"}}}
	for name, tc := range map[string]struct {
		caller authn.Caller
		want   []adminv1.Role
	}{
		"app role":           {authn.Caller{Roles: []string{"Clusters.Operate"}}, []adminv1.Role{adminv1.Reader, adminv1.Operator}},
		"both":               {authn.Caller{Roles: []string{"Clusters.Operate"}, Groups: []string{"readers"}}, []adminv1.Role{adminv1.Reader, adminv1.Operator}},
		"other case":         {authn.Caller{Roles: []string{"clusters.operate"}}, nil},
		"group of that name": {authn.Caller{Groups: []string{"Clusters.Operate"}}, nil},
	} {
		if got := config.Roles(tc.caller); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// TestRefusalNamesTheCause checks that the error for a caller without a role names the groups overage and missing claims.
func TestRefusalNamesTheCause(t *testing.T) {
	groups := &access.Config{Groups: map[adminv1.Role][]string{adminv1.Reader: {"readers"}}}
	onlyRoles := &access.Config{AppRoles: map[adminv1.Role][]string{adminv1.Reader: {"Clusters.Read"}}}
	for name, tc := range map[string]struct {
		config *access.Config
		caller authn.Caller
		want   string
	}{
		"overage":               {groups, authn.Caller{GroupsOverage: true}, "groups overage, claim _claim_names"},
		"overage, unused":       {onlyRoles, authn.Caller{GroupsOverage: true, Roles: []string{"Other"}}, "none of your groups"},
		"no claim":              {groups, authn.Caller{}, "neither the claim groups nor the claim roles"},
		"groups without a role": {groups, authn.Caller{Groups: []string{"others"}}, "none of your groups"},
	} {
		err := tc.config.Refusal(tc.caller, adminv1.Reader)
		if e := apierror.As(err); e.Kind != apierror.PermissionDenied || !strings.Contains(e.Message, tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

// TestClaimsOfConfiguration checks which claims a sidecar is asked for.
func TestClaimsOfConfiguration(t *testing.T) {
	names := []string{"preferred_username", "unique_name"}
	for name, tc := range map[string]struct {
		config *access.Config
		want   []string
	}{
		"nothing": {&access.Config{}, names},
		"groups":  {&access.Config{Groups: map[adminv1.Role][]string{adminv1.Reader: {"a"}}}, append([]string{"_claim_names", "groups"}, names...)},
		"all": {&access.Config{AppRoles: map[adminv1.Role][]string{adminv1.Reader: {"a"}}, Conditions: map[adminv1.Role]access.Condition{
			adminv1.Operator:   {AuthenticationContext: "c1"},
			adminv1.BreakGlass: {AuthenticationMethods: []string{"mfa"}, AuthenticationContext: "c2", Device: true}}},
			[]string{"acrs", "amr", "deviceid", "preferred_username", "roles", "unique_name"}},
	} {
		if got := tc.config.Claims(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
