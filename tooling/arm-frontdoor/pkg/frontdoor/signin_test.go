package frontdoor

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestBrowserSignsIn checks that the page offers the people with access, that only their passwords lead back to the application, and that errors
// lead back only to a registered URI.
func TestBrowserSignsIn(t *testing.T) {
	h := newEnvironment(t)
	const back, audience = "https://portal.example/signed-in", "https://admin.example"
	h.issuer.AddClients(
		token.Client{TenantID: tenant, ClientID: "portal", Name: "SRE <portal>", ObjectID: "p", Workload: "sa:admin", Audiences: []string{audience}, RedirectURIs: []string{back}},
		token.Client{TenantID: tenant, ClientID: "hcpctl", ClientSecret: "a", ObjectID: "alice", Name: "alice@example.com", Audiences: []string{audience}})
	client := *h.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	send := func(method, path string, query, form url.Values, site string) (*http.Response, string) {
		t.Helper()
		request := must.Get(http.NewRequestWithContext(t.Context(), method, h.server.URL+"/"+tenant+path+"?"+query.Encode(), strings.NewReader(form.Encode())))(t)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", site)
		response := must.Get(client.Do(request))(t)
		defer func() { _ = response.Body.Close() }()
		body := must.Get(io.ReadAll(response.Body))(t)
		return response, string(body)
	}
	get := func(path string, query url.Values) (*http.Response, string) {
		t.Helper()
		return send(http.MethodGet, path, query, nil, "none")
	}
	sum := sha256.Sum256([]byte("verifier"))
	query := url.Values{"client_id": {"portal"}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid " + audience + "/.default"}, "state": {"a state"},
		"nonce": {"n"}, "code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}
	response, body := get("/oauth2/v2.0/authorize", query)
	if response.StatusCode != http.StatusOK || !strings.Contains(body, "alice@example.com") || !strings.Contains(body, "SRE &lt;portal&gt;") || strings.Contains(body, "dev@test") {
		t.Errorf("%s: %s", response.Status, body)
	}
	if policy := response.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || !strings.HasSuffix(policy, "form-action 'self' https://portal.example") {
		t.Errorf("the policy of the page is %q", policy)
	}
	signIn := func(person, password, site string) (*http.Response, string) {
		t.Helper()
		return send(http.MethodPost, "/oauth2/v2.0/authorize", query, url.Values{personParameter: {person}, passwordParameter: {password}}, site)
	}
	for _, password := range []string{"", "wrong"} {
		if response, body := signIn("alice", password, "same-origin"); response.StatusCode != http.StatusUnauthorized || response.Header.Get("Location") != "" || !strings.Contains(body, "not the password") {
			t.Errorf("the password %q: %s to %s: %s", password, response.Status, response.Header.Get("Location"), body)
		}
	}
	if response, _ := signIn("alice", "a", "cross-site"); response.StatusCode != http.StatusForbidden {
		t.Errorf("the form of another site: %s", response.Status)
	}
	linked := maps.Clone(query)
	linked.Set(personParameter, "alice")
	linked.Set(passwordParameter, "a")
	if response, _ := get("/oauth2/v2.0/authorize", linked); response.StatusCode != http.StatusOK {
		t.Errorf("a link signs a person in: %s", response.Status)
	}
	response, _ = signIn("alice", "a", "same-origin")
	location, err := response.Location()
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusSeeOther || !strings.HasPrefix(location.String(), back+"?") || location.Query().Get("state") != "a state" || location.Query().Get("code") == "" {
		t.Errorf("%s to %s", response.Status, location)
	}
	response, _ = signIn("nobody", "a", "same-origin")
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

// TestPersonSignsInToDevice checks the page on which a person enters the code of a device: the code, the choice, and that only its own form decides.
func TestPersonSignsInToDevice(t *testing.T) {
	h := newEnvironment(t)
	const audience = "https://admin.example"
	h.issuer.AddClients(
		token.Client{TenantID: tenant, ClientID: "cli", Name: "hcpctl", ObjectID: "c", Public: true, Audiences: []string{audience}, RedirectURIs: []string{"http://127.0.0.1/signed-in"}},
		token.Client{TenantID: tenant, ClientID: "cli", ClientSecret: "a", ObjectID: "alice", Name: "alice@example.com", Audiences: []string{audience}})
	send := func(path string, form url.Values, header http.Header) (int, string) {
		t.Helper()
		method, target := http.MethodPost, h.server.URL+"/"+tenant+path
		if header == nil {
			method, target = http.MethodGet, target+"?"+form.Encode()
		}
		request := must.Get(http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode())))(t)
		request.Header = header.Clone()
		if header != nil {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		response := must.Get(h.client.Do(request))(t)
		defer func() { _ = response.Body.Close() }()
		body := must.Get(io.ReadAll(response.Body))(t)
		return response.StatusCode, string(body)
	}
	status, body := send("/oauth2/v2.0/devicecode", url.Values{"client_id": {"cli"}, "scope": {"openid " + audience + "/.default"}}, http.Header{})
	var device struct {
		Code     string `json:"device_code"`
		UserCode string `json:"user_code"`
		Page     string `json:"verification_uri"`
	}
	if err := json.Unmarshal([]byte(body), &device); err != nil || status != http.StatusOK || !strings.HasSuffix(device.Page, "/"+tenant+"/oauth2/v2.0/deviceauth") {
		t.Fatalf("%d: %s, %v", status, body, err)
	}
	redeem := func() (int, string) {
		return send("/oauth2/v2.0/token", url.Values{"grant_type": {token.DeviceGrant}, "client_id": {"cli"}, "device_code": {device.Code}}, http.Header{})
	}
	if status, body := redeem(); status != http.StatusBadRequest || !strings.Contains(body, "authorization_pending") {
		t.Errorf("before the person decides: %d: %s", status, body)
	}
	page, own := "/oauth2/v2.0/deviceauth", http.Header{"Sec-Fetch-Site": {"same-origin"}}
	if status, body := send(page, nil, nil); status != http.StatusOK || !strings.Contains(body, `name="user_code"`) {
		t.Errorf("the page: %d: %s", status, body)
	}
	if status, body := send(page, url.Values{"user_code": {"wrong"}}, nil); status != http.StatusBadRequest || strings.Contains(body, "alice") {
		t.Errorf("a wrong code: %d: %s", status, body)
	}
	chosen := url.Values{"user_code": {device.UserCode}, personParameter: {"alice"}, passwordParameter: {"a"}}
	if status, body := send(page, chosen, nil); status != http.StatusOK || !strings.Contains(body, "alice@example.com") || !strings.Contains(body, device.UserCode) {
		t.Errorf("the choice: %d: %s", status, body)
	}
	if status, _ := send(page, chosen, http.Header{"Sec-Fetch-Site": {"cross-site"}}); status != http.StatusForbidden {
		t.Errorf("the form of another site: %d", status)
	}
	wrong := maps.Clone(chosen)
	wrong.Set(passwordParameter, "wrong")
	if status, body := send(page, wrong, own); status != http.StatusUnauthorized || !strings.Contains(body, "not the password") || !strings.Contains(body, device.UserCode) {
		t.Errorf("a wrong password: %d: %s", status, body)
	}
	if _, body := redeem(); strings.Contains(body, "access_token") {
		t.Error("a wrong password, a link or another site signed a person in")
	}
	if status, body := send(page, chosen, own); status != http.StatusOK || !strings.Contains(body, "signed in to hcpctl") {
		t.Errorf("the form: %d: %s", status, body)
	}
	if status, body := redeem(); status != http.StatusOK || !strings.Contains(body, "access_token") || !strings.Contains(body, "id_token") {
		t.Errorf("after the person decided: %d", status)
	}
}
