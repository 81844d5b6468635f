package token_test

import (
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestClaimsOfEngineers issues tokens with and without the claims that admin can require, and with a groups overage.
func TestClaimsOfEngineers(t *testing.T) {
	const admin = "https://admin.example"
	plain := token.Client{TenantID: "t", ClientID: "hcpctl", ClientSecret: "plain", ObjectID: "alice", Groups: []string{"readers"}}
	complete := plain
	complete.ClientSecret, complete.Roles, complete.AuthenticationMethods = "complete", []string{"Clusters.Operate"}, []string{"pwd", "mfa"}
	complete.AuthenticationContexts, complete.DeviceID = []string{"c1"}, "device"
	overage := plain
	overage.ClientSecret, overage.GroupsOverage = "overage", true
	issuer := must.Get(token.NewIssuer("https://issuer.example", t.TempDir(), []token.Client{plain, complete, overage}, admin))(t)
	for secret, want := range map[string]map[string]any{
		"plain":    {"groups": []any{"readers"}},
		"complete": {"groups": []any{"readers"}, "roles": []any{"Clusters.Operate"}, "amr": []any{"pwd", "mfa"}, "acrs": []any{"c1"}, "deviceid": "device"},
		"overage":  {"_claim_names": map[string]any{"groups": "src1"}},
	} {
		text := must.Get(issuer.Issue("t", "hcpctl", secret, admin+"/.default"))(t)
		claims := jwt.MapClaims{}
		if _, _, err := jwt.NewParser().ParseUnverified(text, claims); err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		for _, name := range []string{"groups", "roles", "amr", "acrs", "deviceid", "_claim_names"} {
			if value, is := claims[name]; is {
				got[name] = value
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", secret, diff)
		}
	}
}
