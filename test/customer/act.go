package customer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
)

// ExternalAuthID is the ARM id of an external authentication.
func (c *Customer) ExternalAuthID(cluster, name string) string {
	return c.ClusterID(cluster) + "/externalAuths/" + name
}

// ExternalAuthBody is an external authentication that passes every rule.
func (c *Customer) ExternalAuthBody() armresources.GenericResource {
	return armresources.GenericResource{Properties: map[string]any{
		"issuer": map[string]any{"url": "https://login.example.com/" + c.Subscription + "/v2.0", "audiences": []string{"cli"}},
		"claim": map[string]any{"mappings": map[string]any{
			"username": map[string]any{"claim": "email", "prefixPolicy": "NoPrefix"},
			"groups":   map[string]any{"claim": "groups"},
		}},
		"clients": []any{map[string]any{
			"component": map[string]any{"name": "cli", "authClientNamespace": "openshift-console"}, "clientId": "cli", "type": "Public",
		}},
	}}
}

// Act posts an action on a resource, waits for the operation's end, and reads its result into one that is not nil.
// armresources has no method for actions: this is its pipeline with azcore's poller.
func (c *Customer) Act(ctx context.Context, id, action string, body, into any) error {
	request, err := runtime.NewRequest(ctx, http.MethodPost, c.endpoints.ARM+id+"/"+action+"?api-version="+APIVersion)
	if err != nil {
		return err
	}
	if body != nil {
		if err := runtime.MarshalAsJSON(request, body); err != nil {
			return err
		}
	}
	response, err := c.pipeline.Do(request)
	if err != nil {
		return fmt.Errorf("POST %s/%s: %w", id, action, err)
	}
	if !runtime.HasStatusCode(response, http.StatusAccepted) {
		return runtime.NewResponseError(response)
	}
	poller, err := runtime.NewPoller(response, c.pipeline, &runtime.NewPollerOptions[json.RawMessage]{FinalStateVia: runtime.FinalStateViaLocation})
	if err != nil {
		return err
	}
	result, err := poller.PollUntilDone(ctx, pollOften)
	if err != nil {
		return fmt.Errorf("waiting for %s of %s: %w", action, id, err)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(result, into)
}
