package frontdoor

import (
	"net/http"
	"testing"
)

// TestCustomerCannotSetStateOfSubscription suspends a subscription as ARM. Its customer cannot end that: neither by setting the state nor by
// a new registration of the provider.
func TestCustomerCannotSetStateOfSubscription(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	const path, version = "/subscriptions/" + subscription, "?api-version=2021-04-01"
	const registration = path + "/providers/Microsoft.RedHatOpenShift/"
	arm, state := h.asARM(t), func(name string) any { return map[string]string{"state": name} }
	for _, step := range []struct {
		reason       string
		header       http.Header
		method, path string
		body         any
		status       int
		code         string
		// known is the state that the provider knows afterwards.
		known string
	}{
		{"a state by the customer", nil, http.MethodPut, path, state("Warned"), http.StatusForbidden, "AuthorizationFailed", "Registered"},
		{"the same state by the customer", nil, http.MethodPut, path, state("Registered"), http.StatusForbidden, "AuthorizationFailed", "Registered"},
		{"an unknown state", arm, http.MethodPut, path, state("Enabled"), http.StatusBadRequest, "InvalidRequestContent", "Registered"},
		{"another subscription", arm, http.MethodPut, "/subscriptions/99999999-9999-9999-9999-999999999999", state("Suspended"), http.StatusNotFound, "SubscriptionNotFound", "Registered"},
		{"a suspension by ARM", arm, http.MethodPut, path, state("Suspended"), http.StatusOK, "", "Suspended"},
		{"its end by the customer", nil, http.MethodPut, path, state("Registered"), http.StatusForbidden, "AuthorizationFailed", "Suspended"},
		{"the end of the registration", nil, http.MethodPost, registration + "unregister", nil, http.StatusConflict, "ReadOnlyDisabledSubscription", "Suspended"},
		{"a registration", nil, http.MethodPost, registration + "register", nil, http.StatusConflict, "ReadOnlyDisabledSubscription", "Suspended"},
		{"a new name", nil, http.MethodPut, path, map[string]string{"displayName": "mine"}, http.StatusOK, "", "Suspended"},
		{"the end by ARM", arm, http.MethodPut, path, state("Registered"), http.StatusOK, "", "Registered"},
		{"reading as ARM", arm, http.MethodGet, path, nil, http.StatusNotFound, "SubscriptionNotFound", "Registered"},
	} {
		response, body := h.do(t, step.method, step.path+version, step.header, step.body)
		if response.StatusCode != step.status || response.Header.Get("X-Ms-Error-Code") != step.code {
			t.Errorf("%s: %d %v, want %d %s", step.reason, response.StatusCode, body, step.status, step.code)
		}
		if known := h.provider.subscriptions[path]["state"]; known != step.known {
			t.Errorf("after %s the provider knows the state %v, want %s", step.reason, known, step.known)
		}
		if s, _ := h.directory.Subscription(subscription); s.TenantID != tenant {
			t.Errorf("after %s the subscription belongs to the tenant %s", step.reason, s.TenantID)
		}
	}
}
