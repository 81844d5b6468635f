package frontdoor

import (
	"net/http"
	"testing"
)

// TestCustomerCannotApproveOwnFeature registers a feature as the customer: it has no effect before the provider approves it.
func TestCustomerCannotApproveOwnFeature(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	const name = "Microsoft.RedHatOpenShift/ExperimentalReleaseFeatures"
	feature := "/subscriptions/" + subscription + "/providers/Microsoft.Features/providers/Microsoft.RedHatOpenShift/features/ExperimentalReleaseFeatures"
	const version = "?api-version=2021-07-01"
	provider := h.asARM(t)
	for _, step := range []struct {
		reason       string
		header       http.Header
		method, path string
		status       int
		// state is the state of the feature afterwards, for the customer and for the provider. Empty means that the provider does not
		// know the feature.
		state, notified string
	}{
		{"approval of a feature that nobody requested", provider, http.MethodPost, feature + "/approve", http.StatusConflict, "NotRegistered", ""},
		{"registration by the customer", nil, http.MethodPost, feature + "/register", http.StatusOK, "Pending", "Pending"},
		{"a second registration by the customer", nil, http.MethodPost, feature + "/register", http.StatusOK, "Pending", "Pending"},
		{"approval by the customer", nil, http.MethodPost, feature + "/approve", http.StatusForbidden, "Pending", "Pending"},
		{"approval by the provider", provider, http.MethodPost, feature + "/approve", http.StatusOK, "Registered", "Registered"},
		{"registration of a registered feature", nil, http.MethodPost, feature + "/register", http.StatusOK, "Registered", "Registered"},
		{"other requests of the provider", provider, http.MethodGet, feature, http.StatusNotFound, "Registered", "Registered"},
		{"the end of the registration", nil, http.MethodPost, feature + "/unregister", http.StatusOK, "NotRegistered", ""},
	} {
		response, body := h.do(t, step.method, step.path+version, step.header, nil)
		if response.StatusCode != step.status {
			t.Fatalf("%s: %d %v, want %d", step.reason, response.StatusCode, body, step.status)
		}
		_, body = h.do(t, http.MethodGet, feature+version, nil, nil)
		if properties, _ := body["properties"].(map[string]any); properties["state"] != step.state || body["name"] != name {
			t.Errorf("after %s the feature is %v, want state %s", step.reason, body, step.state)
		}
		notified := ""
		properties, _ := h.provider.subscriptions["/subscriptions/"+subscription]["properties"].(map[string]any)
		features, _ := properties["registeredFeatures"].([]any)
		for _, f := range features {
			if f := f.(map[string]any); f["name"] == name {
				notified, _ = f["state"].(string)
			}
		}
		if notified != step.notified {
			t.Errorf("after %s the provider knows the state %q, want %q", step.reason, notified, step.notified)
		}
	}
}
