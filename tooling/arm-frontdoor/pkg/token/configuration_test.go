package token_test

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestConfigurationHasEndpointsOfTheRequest checks that clients at a loopback address get endpoints that they can reach, and that others do not
// choose endpoints.
func TestConfigurationHasEndpointsOfTheRequest(t *testing.T) {
	issuer := must.Get(token.NewIssuer("https://login.example", t.TempDir(), nil))(t)
	for host, want := range map[string]string{
		"127.0.0.1:18400":   "https://127.0.0.1:18400/tenant/oauth2/v2.0/token",
		"[::1]:18400":       "https://[::1]:18400/tenant/oauth2/v2.0/token",
		"login.example":     "https://login.example/tenant/oauth2/v2.0/token",
		"other.example:443": "https://login.example/tenant/oauth2/v2.0/token",
		"192.0.2.1:443":     "https://login.example/tenant/oauth2/v2.0/token",
	} {
		document := issuer.Configuration("tenant", host).(map[string]any)
		if got := document["token_endpoint"]; got != want {
			t.Errorf("%s: the token endpoint is %v, want %s", host, got, want)
		}
		if got := document["issuer"]; got != "https://login.example/tenant/v2.0" {
			t.Errorf("%s: the issuer is %v", host, got)
		}
	}
}
