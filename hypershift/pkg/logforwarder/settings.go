package logforwarder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// settingsClient reads diagnostic settings.
type settingsClient struct {
	endpoint string
	pipeline runtime.Pipeline
}

func newSettingsClient(a *Azure) *settingsClient {
	options := a.clientOptions()
	token := runtime.NewBearerTokenPolicy(a.Credential, []string{"https://management.azure.com/.default"}, nil)
	return &settingsClient{a.ResourceManager, runtime.NewPipeline("log-forwarder", "", runtime.PipelineOptions{PerRetry: []policy.Policy{token}}, &options)}
}

// of returns the diagnostic settings of a resource, ordered by name. A resource that does not exist has none.
func (c *settingsClient) of(ctx context.Context, resourceID string) ([]customerlog.Setting, error) {
	request, err := runtime.NewRequest(ctx, http.MethodGet, runtime.JoinPaths(c.endpoint, resourceID, "/providers/Microsoft.Insights/diagnosticSettings"))
	if err != nil {
		return nil, err
	}
	request.Raw().URL.RawQuery = "api-version=2021-05-01-preview"
	response, err := c.pipeline.Do(request)
	if err != nil {
		return nil, &deliveryError{hostedreport.LogFaultAzure, "Unavailable", fmt.Errorf("reading the diagnostic settings: %w", err)}
	}
	switch {
	case runtime.HasStatusCode(response, http.StatusOK):
	case runtime.HasStatusCode(response, http.StatusNotFound):
		return nil, response.Body.Close()
	default:
		var failed *azcore.ResponseError
		if err := runtime.NewResponseError(response); !errors.As(err, &failed) {
			return nil, err
		}
		fault := hostedreport.LogFaultService
		if failed.StatusCode == http.StatusTooManyRequests || failed.StatusCode >= 500 {
			fault = hostedreport.LogFaultAzure
		}
		return nil, &deliveryError{fault, reasonOf(failed), fmt.Errorf("reading the diagnostic settings: HTTP status %d", failed.StatusCode)}
	}
	var list struct {
		Value []customerlog.Setting `json:"value"`
	}
	if err := runtime.UnmarshalAsJSON(response, &list); err != nil {
		return nil, &deliveryError{hostedreport.LogFaultAzure, "InvalidResponse", fmt.Errorf("reading the diagnostic settings: %w", err)}
	}
	slices.SortFunc(list.Value, func(a, b customerlog.Setting) int {
		return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name))
	})
	return list.Value[:min(len(list.Value), maxSettings)], nil
}
