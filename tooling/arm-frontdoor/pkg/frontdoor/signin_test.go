package frontdoor

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestBrowserSignsIn checks that the page offers the people with access, that their links lead back to the application, and that errors
// lead back only to a registered URI.
func TestBrowserSignsIn(t *testing.T) {
	h := newEnvironment(t)
	const back, audience = "https://portal.example/signed-in", "https://admin.example"
	h.issuer.AddClients(
		token.Client{TenantID: tenant, ClientID: "portal", Name: "SRE <portal>", ObjectID: "p", Workload: "sa:admin", Audiences: []string{audience}, RedirectURIs: []string{back}},
		token.Client{TenantID: tenant, ClientID: "hcpctl", ClientSecret: "a", ObjectID: "alice", Name: "alice@example.com", Audiences: []string{audience}})
	client := *h.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	get := func(path string, query url.Values) (*http.Response, string) {
		t.Helper()
		response, err := client.Get(h.server.URL + "/" + tenant + path + "?" + query.Encode())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response, string(body)
	}
	sum := sha256.Sum256([]byte("verifier"))
	query := url.Values{"client_id": {"portal"}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid " + audience + "/.default"}, "state": {"a state"},
		"nonce": {"n"}, "code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}
	response, body := get("/oauth2/v2.0/authorize", query)
	if response.StatusCode != http.StatusOK || !strings.Contains(body, "alice@example.com") || !strings.Contains(body, "SRE &lt;portal&gt;") || strings.Contains(body, "dev@test") {
		t.Errorf("%s: %s", response.Status, body)
	}
	if policy := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
		t.Errorf("the policy of the page is %q", policy)
	}
	query.Set(personParameter, "alice")
	response, _ = get("/oauth2/v2.0/authorize", query)
	location, err := response.Location()
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusFound || !strings.HasPrefix(location.String(), back+"?") || location.Query().Get("state") != "a state" || location.Query().Get("code") == "" {
		t.Errorf("%s to %s", response.Status, location)
	}
	query.Set(personParameter, "nobody")
	response, _ = get("/oauth2/v2.0/authorize", query)
	if location, err = response.Location(); err != nil || location.Query().Get("error") != "access_denied" || location.Query().Has("code") {
		t.Errorf("a person without access: %v, %v", location, err)
	}
	query.Set("redirect_uri", "https://attacker.example/")
	response, body = get("/oauth2/v2.0/authorize", query)
	if response.StatusCode != http.StatusBadRequest || response.Header.Get("Location") != "" || !strings.Contains(body, "redirect_uri") {
		t.Errorf("another redirect URI: %s, %s", response.Status, body)
	}
	response, _ = get("/oauth2/v2.0/logout", url.Values{"post_logout_redirect_uri": {back}})
	if response.Header.Get("Location") != back {
		t.Errorf("signing out: %s", response.Status)
	}
	response, body = get("/oauth2/v2.0/logout", url.Values{"post_logout_redirect_uri": {"https://attacker.example/"}})
	if response.StatusCode != http.StatusOK || response.Header.Get("Location") != "" || !strings.Contains(body, "signed out") {
		t.Errorf("signing out to another URI: %s, %s", response.Status, body)
	}
}
