package frontdoor

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// claimsOf returns the claims of a token. It does not verify the signature.
func claimsOf(t *testing.T, authorization string) map[string]any {
	t.Helper()
	parts := strings.Split(strings.TrimPrefix(authorization, "Bearer "), ".")
	if len(parts) != 3 {
		t.Fatalf("not a bearer token: %q", authorization)
	}
	content := must.Get(base64.RawURLEncoding.DecodeString(parts[1]))(t)
	var claims map[string]any
	must.Do(t, json.Unmarshal(content, &claims))
	return claims
}

// TestProviderReceivesARMsToken checks that all requests to the provider, forwarded or not, have ARM's token and never the
// caller's.
func TestProviderReceivesARMsToken(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	if response, _ := h.do(t, http.MethodPut, clusterID("one")+"?api-version="+apiVersion, nil, map[string]any{"location": "westus3"}); response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
	h.do(t, http.MethodGet, "/subscriptions/"+subscription+"/resources?api-version=2021-04-01", nil, nil)
	for i, request := range h.provider.requests {
		claims := claimsOf(t, request.Header.Get("Authorization"))
		for name, want := range map[string]any{
			"iss": h.server.URL + "/" + armClient.TenantID + "/v2.0", "appid": armClient.ClientID, "oid": armClient.ObjectID, "tid": armClient.TenantID,
		} {
			if claims[name] != want {
				t.Errorf("request %d: %s is %v, want %v", i, name, claims[name], want)
			}
		}
		if diff := cmp.Diff([]any{providerAudience}, claims["aud"]); diff != "" {
			t.Errorf("request %d: audience (-want +got):\n%s", i, diff)
		}
	}
	// Clients can request tokens for the provider, but ARM does not accept them.
	text := must.Get(h.issuer.Issue(tenant, "client", "secret", providerAudience+"/.default"))(t)
	if response, _ := h.do(t, http.MethodGet, "/subscriptions?api-version=2022-12-01", http.Header{"Authorization": {"Bearer " + text}}, nil); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token for the provider: %s, want 401", response.Status)
	}
}
