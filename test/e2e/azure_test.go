package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// azureResponse sends a request with a token and returns the status and the body of the response.
func azureResponse(t *testing.T, ctx context.Context, token, method, url, body string) (int, string) {
	t.Helper()
	client := must.Get(customer.NewHTTPClient(region.Endpoints().CAFile))(t)
	defer client.CloseIdleConnections()
	request := must.Get(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))(t)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("x-ms-blob-type", "BlockBlob")
	response := must.Get(client.Do(request))(t)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(text)
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
