package authn_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestClaimsOfTokens checks the claims by which a service may require more than a valid token.
func TestClaimsOfTokens(t *testing.T) {
	i := newIssuer(t)
	tokens := i.tokens()
	for name, tc := range map[string]struct {
		changes jwt.MapClaims
		want    authn.Caller
	}{
		"none":                         {nil, authn.Caller{}},
		"groups":                       {jwt.MapClaims{"groups": []string{"g"}}, authn.Caller{Groups: []string{"g"}}},
		"overage":                      {jwt.MapClaims{"_claim_names": map[string]string{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]string{"endpoint": "https://graph"}}}, authn.Caller{GroupsOverage: true}},
		"overage of the implicit flow": {jwt.MapClaims{"hasgroups": true}, authn.Caller{GroupsOverage: true}},
		"overage of another claim":     {jwt.MapClaims{"_claim_names": map[string]string{"wids": "src1"}}, authn.Caller{}},
		"all": {jwt.MapClaims{"roles": []string{"Clusters.Operate"}, "amr": []string{"pwd", "mfa"}, "acrs": []string{"c1"}, "deviceid": "d"},
			authn.Caller{Roles: []string{"Clusters.Operate"}, AuthenticationMethods: []string{"pwd", "mfa"}, AuthenticationContexts: []string{"c1"}, DeviceID: "d"}},
	} {
		tc.want.TenantID, tc.want.AppID, tc.want.ObjectID = tenant, arm, object
		got, err := authenticate(tokens, "Bearer "+i.sign(t, "first", tc.changes))
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// TestSidecarReturnsClaims checks that a check requests the claims that a service needs, and only those, and that claims that are
// lists are read in both forms. A claim in another form is refused.
func TestSidecarReturnsClaims(t *testing.T) {
	var requested []string
	response := http.Header{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requested = nil
		for name := range r.Header {
			const prefix = "Return-Subject-Token-Claim-"
			if len(name) > len(prefix) && name[:len(prefix)] == prefix {
				requested = append(requested, name[len(prefix):])
			}
		}
		maps.Copy(w.Header(), response)
	}))
	t.Cleanup(server.Close)
	sidecar := must.Get(authn.NewSidecar(server.URL, authn.ClaimGroups, authn.ClaimRoles, authn.ClaimAuthenticationMethods, "_claim_names", authn.ClaimDevice))(t)
	claims := func(all map[string][]string) {
		response = http.Header{}
		for name, values := range all {
			for _, value := range values {
				response.Add("Subject-Token-Claim-"+name, value)
			}
		}
	}
	groups := must.Get(json.Marshal([]string{"g1", "g2"}))(t)
	for name, tc := range map[string]struct {
		claims map[string][]string
		want   authn.Caller
	}{
		"arrays":        {map[string][]string{"oid": {"o"}, "groups": {string(groups)}, "amr": {`["mfa"]`}}, authn.Caller{ObjectID: "o", Groups: []string{"g1", "g2"}, AuthenticationMethods: []string{"mfa"}}},
		"headers":       {map[string][]string{"oid": {"o"}, "groups": {"g1", "g2"}, "roles": {"r"}, "deviceid": {"d"}}, authn.Caller{ObjectID: "o", Groups: []string{"g1", "g2"}, Roles: []string{"r"}, DeviceID: "d"}},
		"overage":       {map[string][]string{"oid": {"o"}, "_claim_names": {`{"groups":"src1"}`}}, authn.Caller{ObjectID: "o", GroupsOverage: true}},
		"with a comma":  {map[string][]string{"oid": {"o"}, "roles": {"a,b"}}, authn.Caller{ObjectID: "o", Roles: []string{"a,b"}}},
		"without lists": {map[string][]string{"oid": {"o"}, "tid": {"t"}, "preferred_username": {"n"}}, authn.Caller{ObjectID: "o", TenantID: "t", Name: "n"}},
	} {
		claims(tc.claims)
		got, err := authenticate(sidecar, "Bearer token")
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	slices.Sort(requested)
	if want := []string{"Amr", "Appid", "Deviceid", "Groups", "Oid", "Roles", "Tid", "_claim_names"}; !slices.Equal(requested, want) {
		t.Errorf("requested %q, want %q", requested, want)
	}
	claims(map[string][]string{"oid": {"o"}, "groups": {`[{"id":"g"}]`}})
	if caller, err := authenticate(sidecar, "Bearer token"); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("a claim in another form: %+v, %v", caller, err)
	}
}

// TestRequestedClaims reads the claims of challenges back, and no claims from other values of the header.
func TestRequestedClaims(t *testing.T) {
	err := authn.InsufficientClaims("m", "https://issuer.example/authorize", []authn.MissingClaim{{Name: authn.ClaimAuthenticationContexts, Value: "c1"}})
	for challenge, want := range map[string]string{
		authn.Challenge(err): `{"access_token":{"acrs":{"essential":true,"value":"c1"}}}`,
		"":                   "",
		`Bearer realm="Microsoft.RedHatOpenShift", error="invalid_token"`:            "",
		`Bearer realm="", error="insufficient_claims", claims="e30"`:                 "", // base64 without padding
		`Bearer realm="", error="insufficient_claims", claims="eA=="`:                "", // no JSON
		`Bearer realm="", error="invalid_token", claims="e30="`:                      "",
		`Bearer realm="", error="insufficient_claims", claims="e30=", trailing="no"`: "{}",
	} {
		if got := authn.RequestedClaims(challenge); got != want {
			t.Errorf("RequestedClaims(%q) is %q, want %q", challenge, got, want)
		}
	}
}
