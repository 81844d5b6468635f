package frontdoor

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const validation = "/subscriptions/" + subscription + "/resourcegroups/group/providers/Microsoft.Resources/deployments/demo/validate?api-version=2024-03-01"

func decodeJSON(t *testing.T, text string) any {
	t.Helper()
	var value any
	must.Do(t, json.Unmarshal([]byte(text), &value))
	return value
}

// TestDeploymentValidation checks that the provider validates its resources of a template, with expressions evaluated,
// and that its error is returned in the form of ARM.
func TestDeploymentValidation(t *testing.T) {
	cases := map[string]struct {
		reason, body string
		status       int
		code         string
		// preflight holds the resources that the provider validates; empty if it is not called.
		preflight string
	}{
		"accepted": {
			reason: "parameters, variables and the location of the group are evaluated",
			body: `{"properties":{"mode":"Incremental","parameters":{"name":{"value":"one"}},"template":{
				"parameters":{"name":{"type":"string"},"version":{"type":"string","defaultValue":"4.20"}},
				"variables":{"kind":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters","profile":{"id":"[parameters('version')]"},"loop":"[variables('loop')]"},
				"resources":[{"type":"Microsoft.Network/virtualNetworks","name":"vnet"},
					{"type":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters","name":"[parameters('name')]","location":"[resourceGroup().location]",
					"properties":{"version":"[variables('profile')]","subnet":"[reference('vnet').id]","loop":"[variables('loop')]"}}]}}}`,
			status: 200,
			preflight: `[{"type":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters","name":"one","location":"westus3",
				"properties":{"version":{"id":"4.20"},"subnet":"[reference('vnet').id]","loop":"[variables('loop')]"}}]`,
		},
		"children": {
			reason: "nested resources have their full types and names",
			body: `{"properties":{"template":{"resources":{"c":{"type":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters","name":"one",
				"resources":[{"type":"nodePools","name":"workers"}]}}}}}`,
			status: 200,
			preflight: `[{"type":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters","name":"one"},
				{"type":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters/nodePools","name":"one/workers"}]`,
		},
		"rejected": {
			reason: "ARM's error contains that of the provider",
			body:   `{"properties":{"template":{"resources":[{"type":"microsoft.redhatopenshift/hcpOpenShiftClusters","name":"one","location":"nowhere"}]}}}`,
			status: 400, code: "InvalidTemplateDeployment",
			preflight: `[{"type":"microsoft.redhatopenshift/hcpOpenShiftClusters","name":"one","location":"nowhere"}]`,
		},
		"other providers": {reason: "the provider validates only its own resources", body: `{"properties":{"template":{"resources":[{"type":"Microsoft.Network/virtualNetworks"},null]}}}`, status: 200},
		"no template":     {reason: "a template is required", body: `{"properties":{}}`, status: 400, code: "InvalidRequestContent"},
		"no resources":    {reason: "the resources must be a list or an object", body: `{"properties":{"template":{"resources":7}}}`, status: 400, code: "InvalidTemplate"},
		"not JSON":        {reason: "the body must be an object", body: `"x"`, status: 400, code: "InvalidRequestContent"},
	}
	h := newEnvironment(t)
	h.createGroup(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h.provider.preflights = nil
			response, body := h.do(t, http.MethodPost, validation, nil, json.RawMessage(tc.body))
			if response.StatusCode != tc.status || response.Header.Get("X-Ms-Error-Code") != tc.code {
				t.Errorf("%s: %s %v", tc.reason, response.Status, body)
			}
			var want []map[string]any
			if tc.preflight != "" {
				want = []map[string]any{{"resources": decodeJSON(t, tc.preflight)}}
			}
			if diff := cmp.Diff(want, h.provider.preflights); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if tc.code == "InvalidTemplateDeployment" {
				details := body["error"].(map[string]any)["details"]
				if diff := cmp.Diff(decodeJSON(t, `[{"code":"InvalidRequestContent","message":"invalid location","target":"location"}]`), details); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
	for path, status := range map[string]int{
		"/subscriptions/" + subscription + "/resourcegroups/group/providers/Microsoft.Resources/deployments/demo?api-version=2024-03-01": http.StatusBadRequest,
		validation: http.StatusMethodNotAllowed,
	} {
		if response, body := h.do(t, http.MethodPut, path, nil, nil); response.StatusCode != status {
			t.Errorf("PUT %s: %s %v", path, response.Status, body)
		}
	}
}

// FuzzTemplate checks that the evaluation of any template terminates and removes no resource.
func FuzzTemplate(f *testing.F) {
	f.Add(`{"properties":{"template":{"variables":{"a":["[variables('a')]","[variables('a')]","[variables('a')]"]},"resources":[{"type":"Microsoft.RedHatOpenShift/x","name":"[variables('a')]","resources":[{"type":"y"}]}]}}}`)
	f.Fuzz(func(t *testing.T, content string) {
		var body deploymentRequest
		if json.Unmarshal([]byte(content), &body) != nil || body.Properties.Template == nil {
			return
		}
		resources, err := body.Properties.Template.flatten()
		if err != nil {
			return
		}
		evaluation := body.evaluation(Subscription{ID: subscription}, "group")
		for _, resource := range resources {
			if resource != nil && evaluation.resource(resource) == nil && evaluation.remaining >= 0 {
				t.Fatalf("the evaluation of %v is empty", resource)
			}
		}
	})
}

// TestThrottlingHeaders checks the headers with the remaining requests and the time of the next retry.
func TestThrottlingHeaders(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	limits := must.Get(ParseRateLimits("reads=2:0.01,deletes=1:0.01"))(t)
	h.frontDoor.buckets = NewRateBuckets(limits, time.Now)
	get := func() *http.Response {
		response, _ := h.do(t, http.MethodGet, "/subscriptions/"+subscription+"/resourcegroups?api-version=2021-04-01", nil, nil)
		return response
	}
	for _, remaining := range []string{"1", "0"} {
		if response := get(); response.StatusCode != http.StatusOK || response.Header.Get("X-Ms-Ratelimit-Remaining-Subscription-Reads") != remaining {
			t.Errorf("%s, %s requests remain", response.Status, response.Header.Get("X-Ms-Ratelimit-Remaining-Subscription-Reads"))
		}
	}
	if response := get(); response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "100" || response.Header.Get("X-Ms-Error-Code") != "SubscriptionRequestsThrottled" {
		t.Errorf("%s after %s: %v", response.Status, response.Header.Get("Retry-After"), response.Header)
	}
	// Forwarded requests are counted as well, and their responses have the header in addition to those of the provider.
	response, _ := h.do(t, http.MethodPut, clusterID("one")+"?api-version="+apiVersion, nil, map[string]any{"location": "westus3"})
	if response.StatusCode != http.StatusCreated || response.Header.Get("X-Ms-Ratelimit-Remaining-Subscription-Writes") == "" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	response, _ = h.do(t, http.MethodDelete, clusterID("one")+"?api-version="+apiVersion, nil, nil)
	if response.StatusCode != http.StatusAccepted || response.Header.Get("X-Ms-Ratelimit-Remaining-Subscription-Deletes") != "0" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
}
