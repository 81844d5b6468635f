package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/test/customer"
)

// azureResponse sends a request with a token and returns the status and the body of the response.
func azureResponse(t *testing.T, ctx context.Context, token, method, url, body string) (int, string) {
	t.Helper()
	client, err := customer.NewHTTPClient(region.Endpoints().CAFile)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("x-ms-blob-type", "BlockBlob")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestCustomerHasNoRightsInServicesAzure uses the tokens of a customer, of ARM and of Cluster Service in Azure. Customers and ARM
// cannot use the service's vault, zone and documents. Cluster Service cannot give itself a role or read secrets.
func TestCustomerHasNoRightsInServicesAzure(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 5*time.Minute)
	endpoints := region.Endpoints()
	const service = "/subscriptions/9c1f0d5e-6b7a-4c2d-8e3f-0a1b2c3d4e5f"
	const armAudience, vaultAudience, storageAudience = "https://management.azure.com", "https://vault.azure.net", "https://storage.azure.com"
	own := service + "/resourceGroups/region"
	requests := []struct {
		audience, method, path, body string
		// service reports whether Cluster Service may send the request.
		service bool
	}{
		{vaultAudience, http.MethodGet, "/certificates?api-version=7.6", "", true},
		{vaultAudience, http.MethodGet, "/secrets/any?api-version=7.6", "", false},
		{storageAudience, http.MethodGet, "/oidc/issuers?restype=container&comp=list", "", true},
		{armAudience, http.MethodGet, own + "/providers/Microsoft.Network/dnsZones?api-version=2018-05-01", "", true},
		{armAudience, http.MethodDelete, own + "/providers/Microsoft.Network/networkSecurityGroups/any?api-version=2024-05-01", "", false},
		{armAudience, http.MethodPut, service + "/providers/Microsoft.Authorization/roleAssignments/b6b1f0a6-5d0b-4b7e-9f65-0d3a8a6d2c11?api-version=2022-04-01", "{}", false},
	}
	for file, isService := range map[string]bool{endpoints.CredentialsFile: false, endpoints.ARMCredentialsFile: false, endpoints.AzureCredentials: true} {
		for _, r := range requests {
			text := secretToken(t, ctx, file, r.audience)
			if text == "" {
				t.Errorf("%s: no token for %s", file, r.audience)
				continue
			}
			status, body := azureResponse(t, ctx, text, r.method, endpoints.Azure+r.path, r.body)
			if want := isService && r.service; (status == http.StatusForbidden) == want || want && status != http.StatusOK {
				t.Errorf("%s %s with the token of %s: %d %s, allowed should be %t", r.method, r.path, file, status, body, want)
			}
		}
	}
}

// TestSelfRegisteredFeatureHasNoEffect registers a feature as the customer. The frontend ignores it until the provider approves it.
func TestSelfRegisteredFeatureHasNoEffect(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 5*time.Minute)
	const subscription = "11111111-0000-0000-0000-000000000031"
	c := newCustomer(t, ctx, subscription, "features")
	endpoints := region.Endpoints()
	features := endpoints.ARM + "/subscriptions/" + subscription + "/providers/Microsoft.Features/providers/Microsoft.RedHatOpenShift/features/ExperimentalReleaseFeatures/"
	asCustomer, asProvider := secretToken(t, ctx, endpoints.CredentialsFile, "https://management.azure.com"), secretToken(t, ctx, endpoints.ARMCredentialsFile, "https://management.azure.com")
	// The network is invalid, too, so that the request is refused in any case.
	needsFeature := func() error {
		body := c.ClusterBody("experimental")
		properties := body.Properties.(map[string]any)
		properties["version"] = map[string]any{"id": "4.20", "channelGroup": "candidate"}
		properties["network"] = map[string]any{"podCidr": "invalid"}
		_, err := c.Put(ctx, c.ClusterID("experimental"), body)
		return err
	}
	for _, step := range []struct {
		reason, token, action string
		status                int
		refused               bool
	}{
		{"the customer registers the feature", asCustomer, "register", http.StatusOK, true},
		{"the customer approves the feature", asCustomer, "approve", http.StatusForbidden, true},
		{"the provider approves the feature", asProvider, "approve", http.StatusOK, false},
	} {
		if status, text := azureResponse(t, ctx, step.token, http.MethodPost, features+step.action+"?api-version=2021-07-01", ""); status != step.status {
			t.Fatalf("%s: %d %s, want %d", step.reason, status, text, step.status)
		}
		err := needsFeature()
		text := fmt.Sprint(err)
		if !customer.IsStatus(err, http.StatusBadRequest) || !strings.Contains(text, "podCidr") || strings.Contains(text, "channelGroup") != step.refused {
			t.Errorf("after %s the channel group candidate is refused should be %t: %v", step.reason, step.refused, err)
		}
	}
}
