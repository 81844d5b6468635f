package frontdoor

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// TestRatesOutsideOfSubscriptions sends as many requests as the buckets have tokens, and one more. Requests without a principal count for
// the peer, also those with an invalid token; the others count for the principal. Buckets of subscriptions are not affected.
func TestRatesOutsideOfSubscriptions(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	limits := must.Get(ParseRateLimits("anonymous=4:0.1,tenant-reads=3:0.1,tenant-writes=1:0.1"))(t)
	h.frontDoor.buckets = NewRateBuckets(limits, func() time.Time { return time.Unix(0, 0) })
	const api = "?api-version=2022-12-01"
	invalid, arm := http.Header{"Authorization": {"Bearer x"}}, h.asARM(t)
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	token := func() (*http.Response, map[string]any) {
		return h.do(t, http.MethodPost, "/"+tenant+"/oauth2/v2.0/token", form, nil)
	}
	get := func(path string, header http.Header) func() (*http.Response, map[string]any) {
		return func() (*http.Response, map[string]any) { return h.do(t, http.MethodGet, path, header, nil) }
	}
	other := "/subscriptions/99999999-9999-9999-9999-999999999999" + api
	for i, step := range []struct {
		reason string
		send   func() (*http.Response, map[string]any)
		status int
		code   string
	}{
		{"a request for a token", token, http.StatusBadRequest, ""},
		{"the keys", get("/"+tenant+"/discovery/v2.0/keys", nil), http.StatusOK, ""},
		{"the metadata", get("/metadata/endpoints"+api, nil), http.StatusOK, ""},
		{"an invalid token", get("/subscriptions"+api, invalid), http.StatusUnauthorized, "InvalidAuthenticationToken"},
		{"one more invalid token", get("/subscriptions"+api, invalid), http.StatusTooManyRequests, "TooManyRequests"},
		{"one more request for a token", token, http.StatusTooManyRequests, ""},
		{"the configuration", get("/"+tenant+"/v2.0/.well-known/openid-configuration", nil), http.StatusTooManyRequests, "TooManyRequests"},
		{"the list", get("/subscriptions"+api, nil), http.StatusOK, ""},
		{"the provider", get("/providers/Microsoft.RedHatOpenShift"+api, nil), http.StatusOK, ""},
		{"a foreign subscription", get(other, nil), http.StatusNotFound, "SubscriptionNotFound"},
		{"one more list", get("/subscriptions"+api, nil), http.StatusTooManyRequests, "TenantRequestsThrottled"},
		{"the list of another principal", get("/subscriptions"+api, arm), http.StatusOK, ""},
		{"a change of a subscription", func() (*http.Response, map[string]any) {
			return h.do(t, http.MethodPut, "/subscriptions/"+subscription+api, nil, map[string]string{"displayName": "a"})
		}, http.StatusOK, ""},
		{"one more change", func() (*http.Response, map[string]any) {
			return h.do(t, http.MethodPut, "/subscriptions/"+subscription+api, nil, map[string]string{"displayName": "b"})
		}, http.StatusTooManyRequests, "TenantRequestsThrottled"},
		{"the own subscription", get("/subscriptions/"+subscription+api, nil), http.StatusOK, ""},
	} {
		response, body := step.send()
		if response.StatusCode != step.status || response.Header.Get("X-Ms-Error-Code") != step.code {
			t.Errorf("step %d: %s: %d %v, want %d %s", i, step.reason, response.StatusCode, body, step.status, step.code)
		}
		if throttled := response.StatusCode == http.StatusTooManyRequests; throttled != (response.Header.Get("Retry-After") == "10") {
			t.Errorf("step %d: %s: %d with Retry-After %q", i, step.reason, response.StatusCode, response.Header.Get("Retry-After"))
		}
	}
	// The error of the token endpoint has the form of OAuth.
	response, body := h.do(t, http.MethodPost, "/"+tenant+"/oauth2/v2.0/token", form, nil)
	if response.StatusCode != http.StatusTooManyRequests || body["error"] != "temporarily_unavailable" {
		t.Errorf("%d %v", response.StatusCode, body)
	}
}

// TestWrongSecretsAreThrottled sends 120 wrong secrets of a client, and 120 wrong passwords of a person, in a row. The requests after the first 10 are refused in the
// form of the endpoint, also with the right one. The clock is that of the bubble, and no request needs a connection.
func TestWrongSecretsAreThrottled(t *testing.T) {
	h := newEnvironment(t)
	const back, audience = "https://portal.example/signed-in", "https://admin.example"
	clients := []token.Client{
		{TenantID: tenant, ClientID: "client", ClientSecret: "secret", ObjectID: "object", Name: "dev@test"}, {TenantID: tenant, ClientID: "other", ClientSecret: "secret", ObjectID: "other"},
		{TenantID: tenant, ClientID: "portal", ObjectID: "p", Workload: "sa:admin", Audiences: []string{audience}, RedirectURIs: []string{back}},
		{TenantID: tenant, ClientID: "hcpctl", ClientSecret: "a", ObjectID: "alice", Name: "alice@example.com", Audiences: []string{audience}},
	}
	sum := sha256.Sum256([]byte("verifier"))
	signIn := url.Values{"client_id": {"portal"}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid " + audience + "/.default"}, "nonce": {"n"},
		"code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}
	synctest.Test(t, func(t *testing.T) {
		issuer := must.Get(token.NewIssuer(h.server.URL, t.TempDir(), clients, audience))(t)
		h.frontDoor.options.Tokens, h.frontDoor.buckets = issuer, NewRateBuckets(DefaultRateLimits(), time.Now)
		post := func(path string, form url.Values) *httptest.ResponseRecorder {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+tenant+"/oauth2/v2.0/"+path, strings.NewReader(form.Encode()))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			recorder := httptest.NewRecorder()
			h.frontDoor.ServeHTTP(recorder, request)
			return recorder
		}
		issue := func(client, secret string) *httptest.ResponseRecorder {
			return post("token", url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "client_secret": {secret}, "scope": {"https://management.azure.com/.default"}})
		}
		choose := func(password string) *httptest.ResponseRecorder {
			return post("authorize?"+signIn.Encode(), url.Values{personParameter: {"alice"}, passwordParameter: {password}})
		}
		requireStatus := func(reason string, response *httptest.ResponseRecorder, status int) {
			t.Helper()
			wait := ""
			if status == http.StatusTooManyRequests {
				wait = "6"
			}
			if response.Code != status || response.Header().Get(retryAfter) != wait || response.Header().Get("Location") != "" {
				t.Errorf("%s: status %d with the header %v, want %d", reason, response.Code, response.Header(), status)
			}
		}
		for n := range 120 {
			status := http.StatusUnauthorized
			if n >= 10 {
				status = http.StatusTooManyRequests
			}
			requireStatus("a wrong secret", issue("client", "wrong"), status)
			requireStatus("a wrong password", choose("wrong"), status)
		}
		response := issue("client", "secret")
		requireStatus("the right secret", response, http.StatusTooManyRequests)
		var body map[string]string
		if err := json.Unmarshal(response.Body.Bytes(), &body); err != nil || body["error"] != "temporarily_unavailable" || body["error_description"] == "" {
			t.Errorf("%s, %v", response.Body, err)
		}
		requireStatus("the right password", choose("a"), http.StatusTooManyRequests)
		requireStatus("another client", issue("other", "secret"), http.StatusOK)
		time.Sleep(6 * time.Second)
		requireStatus("the right secret after 6 seconds", issue("client", "secret"), http.StatusOK)
		if response := choose("a"); response.Code != http.StatusSeeOther || !strings.HasPrefix(response.Header().Get("Location"), back+"?") {
			t.Errorf("the right password after 6 seconds: %d %v", response.Code, response.Header())
		}
	})
}
