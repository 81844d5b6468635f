package frontdoor

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// claimsOf are what a token says; its signature is checked elsewhere.
func claimsOf(t *testing.T, authorization string) map[string]any {
	t.Helper()
	parts := strings.Split(strings.TrimPrefix(authorization, "Bearer "), ".")
	if len(parts) != 3 {
		t.Fatalf("not a bearer token: %q", authorization)
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(content, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// TestTheProviderIsShownARMsOwnToken, and never the caller's: with what is forwarded as with what the door asks itself.
func TestTheProviderIsShownARMsOwnToken(t *testing.T) {
	h := newHouse(t)
	h.moveIn(t)
	if response, _ := h.do(t, http.MethodPut, clusterID("one")+"?api-version="+apiVersion, nil, map[string]any{"location": "westus3"}); response.StatusCode != http.StatusCreated {
		t.Fatal(response.Status)
	}
	h.do(t, http.MethodGet, "/subscriptions/"+subscription+"/resources?api-version=2021-04-01", nil, nil)
	for i, request := range h.provider.seen {
		claims := claimsOf(t, request.Header.Get("Authorization"))
		for name, want := range map[string]any{
			"iss": h.server.URL + "/" + own.TenantID + "/v2.0", "appid": own.ClientID, "oid": own.ObjectID, "tid": own.TenantID,
		} {
			if claims[name] != want {
				t.Errorf("request %d: %s is %v, not %v", i, name, claims[name], want)
			}
		}
		if diff := cmp.Diff([]any{providerAudience}, claims["aud"]); diff != "" {
			t.Errorf("request %d: the audience (-want +got):\n%s", i, diff)
		}
	}
	// A customer may have a token for the provider, as everywhere; it does not make a caller of ARM.
	text, err := h.issuer.Issue(tenant, "client", "secret", providerAudience+"/.default")
	if err != nil {
		t.Fatal(err)
	}
	if response, _ := h.do(t, http.MethodGet, "/subscriptions?api-version=2022-12-01", http.Header{"Authorization": {"Bearer " + text}}, nil); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token for the provider got %s from ARM", response.Status)
	}
}
