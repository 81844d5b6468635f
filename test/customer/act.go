package customer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
)

// ExternalAuthID returns the resource ID of an external authentication.
func (c *Customer) ExternalAuthID(cluster, name string) string {
	return c.ClusterID(cluster) + "/externalAuths/" + name
}

// ExternalAuthBody returns a valid external authentication. The host of its issuer resolves on no machine, because the domain invalid is
// reserved (RFC 6761, section 6.4).
func (c *Customer) ExternalAuthBody() armresources.GenericResource {
	return armresources.GenericResource{Properties: map[string]any{
		"issuer": map[string]any{"url": "https://login.contoso.invalid/" + c.Subscription + "/v2.0", "audiences": []string{"cli"}},
		"claim": map[string]any{"mappings": map[string]any{
			"username": map[string]any{"claim": "email", "prefixPolicy": "NoPrefix"},
			"groups":   map[string]any{"claim": "groups"},
		}},
		"clients": []any{map[string]any{
			"component": map[string]any{"name": "cli", "authClientNamespace": "openshift-console"}, "clientId": "cli", "type": "Public",
		}},
	}}
}

// Act posts an action on a resource, waits until the operation is terminal, and decodes its result into into unless that is
// nil. armresources has no method for actions, so Act uses its pipeline with the poller of azcore.
func (c *Customer) Act(ctx context.Context, id, action string, body, into any) error {
	poller, err := c.beginAct(ctx, id, action, body)
	if err != nil {
		return err
	}
	result, err := wait(ctx, c, poller)
	if err != nil {
		return fmt.Errorf("waiting for action %s of %s: %w", action, id, err)
	}
	return resultOf(result, into)
}

func resultOf(result json.RawMessage, into any) error {
	if into == nil {
		return nil
	}
	return json.Unmarshal(result, into)
}

func (c *Customer) beginAct(ctx context.Context, id, action string, body any) (*runtime.Poller[json.RawMessage], error) {
	request, err := runtime.NewRequest(ctx, http.MethodPost, c.endpoints.ARM+id+"/"+action+"?api-version="+APIVersion)
	if err != nil {
		return nil, err
	}
	if body != nil {
		if err := runtime.MarshalAsJSON(request, body); err != nil {
			return nil, err
		}
	}
	response, err := c.pipeline.Do(request)
	if err != nil {
		return nil, fmt.Errorf("POST %s/%s: %w", id, action, err)
	}
	if !runtime.HasStatusCode(response, http.StatusAccepted) {
		return nil, runtime.NewResponseError(response)
	}
	return runtime.NewPoller(response, c.pipeline, &runtime.NewPollerOptions[json.RawMessage]{FinalStateVia: runtime.FinalStateViaLocation})
}
