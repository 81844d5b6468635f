package frontdoor

import (
	"net/http"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/throttle"
)

// TestRatesOutsideOfSubscriptions sends as many requests as the buckets have tokens, and one more. Requests without a principal count for
// the peer, also those with an invalid token; the others count for the principal. Buckets of subscriptions are not affected.
func TestRatesOutsideOfSubscriptions(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	limits, err := throttle.Parse("anonymous=4:0.1,tenant-reads=3:0.1,tenant-writes=1:0.1")
	if err != nil {
		t.Fatal(err)
	}
	h.frontDoor.buckets = throttle.New(limits, func() time.Time { return time.Unix(0, 0) })
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
