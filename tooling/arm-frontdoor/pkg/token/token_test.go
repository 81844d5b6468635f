package token_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestAnEngineersTokenNamesGroups, and is for nothing but what the engineer may have tokens for.
func TestAnEngineersTokenNamesGroups(t *testing.T) {
	const admin = "https://admin.example"
	issuer, err := token.NewIssuer("https://issuer.example", t.TempDir(), []token.Client{
		{TenantID: "t", ClientID: "hcpctl", ClientSecret: "first", ObjectID: "alice", Name: "alice@example.com", Groups: []string{"readers"}, Audiences: []string{admin}},
		{TenantID: "t", ClientID: "hcpctl", ClientSecret: "second", ObjectID: "bob", Groups: []string{"operators"}, Audiences: []string{admin}},
	}, admin)
	if err != nil {
		t.Fatal(err)
	}
	for secret, want := range map[string]string{"first": "readers", "second": "operators"} {
		text, err := issuer.Issue("t", "hcpctl", secret, admin+"/.default")
		if err != nil {
			t.Fatal(err)
		}
		var claims struct {
			jwt.RegisteredClaims
			Groups []string `json:"groups"`
		}
		if _, _, err := jwt.NewParser().ParseUnverified(text, &claims); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(claims.Groups, []string{want}) || !slices.Equal(claims.Audience, jwt.ClaimStrings{admin}) {
			t.Errorf("the token is for %v with groups %v", claims.Audience, claims.Groups)
		}
		if _, err := issuer.Verify(text); err == nil {
			t.Error("the token makes its bearer a caller of ARM")
		}
	}
	if _, err := issuer.Issue("t", "hcpctl", "first", "https://management.azure.com/.default"); !errors.Is(err, token.ErrAudience) {
		t.Errorf("a token for ARM: %v", err)
	}
}
