package token_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestClientGroupsAndAudiences checks that tokens contain the client's groups and that Issue enforces the client's
// audiences.
func TestClientGroupsAndAudiences(t *testing.T) {
	const admin = "https://admin.example"
	issuer := must.Get(token.NewIssuer("https://issuer.example", t.TempDir(), []token.Client{
		{TenantID: "t", ClientID: "hcpctl", ClientSecret: "first", ObjectID: "alice", Name: "alice@example.com", Groups: []string{"readers"}, Audiences: []string{admin}},
		{TenantID: "t", ClientID: "hcpctl", ClientSecret: "second", ObjectID: "bob", Groups: []string{"operators"}, Audiences: []string{admin}},
	}, admin))(t)
	for secret, want := range map[string]string{"first": "readers", "second": "operators"} {
		text := must.Get(issuer.Issue("t", "hcpctl", secret, admin+"/.default"))(t)
		var claims struct {
			jwt.RegisteredClaims
			Groups []string `json:"groups"`
		}
		if _, _, err := jwt.NewParser().ParseUnverified(text, &claims); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(claims.Groups, []string{want}) || !slices.Equal(claims.Audience, jwt.ClaimStrings{admin}) {
			t.Errorf("the token has the audience %v and the groups %v", claims.Audience, claims.Groups)
		}
		if _, err := issuer.Verify(text); err == nil {
			t.Error("Verify accepted a token for another audience")
		}
	}
	if _, err := issuer.Issue("t", "hcpctl", "first", "https://management.azure.com/.default"); !errors.Is(err, token.ErrInvalidAudience) {
		t.Errorf("issuing a token for ARM: %v, want ErrInvalidAudience", err)
	}
}
