package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

type token struct{}

func (token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestPublishedClient: the published Go client of ARM creates, reads, patches and deletes a cluster with its own
// pollers.
func TestPublishedClient(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	y := h.newSubscription(t)
	// ARM's client requires TLS. The front door would add the header with the identity's URL.
	api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Ms-Identity-Url", "https://identity.example")
		h.server.ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)

	// The backend's work, while the client polls.
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := h.finishOperations(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	})
	defer wg.Wait()
	defer stop()

	client := must.Get(armresources.NewClient(y.subscription, token{}, &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Transport: api.Client(),
			Retry:     policy.RetryOptions{MaxRetries: -1},
			Cloud: cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: api.URL, Audience: "https://management.example"},
			}},
		},
		DisableRPRegistration: true,
	}))(t)
	var resource armresources.GenericResource
	must.Do(t, json.Unmarshal([]byte(y.body("cluster.json", "{}")), &resource))
	id := y.cluster("cluster")
	fast := &runtime.PollUntilDoneOptions{Frequency: time.Second}

	create := must.Get(client.BeginCreateOrUpdateByID(ctx, id, newestVersion, resource, nil))(t)
	created := must.Get(create.PollUntilDone(ctx, fast))(t)
	if state := created.Properties.(map[string]any)["provisioningState"]; state != "Succeeded" || *created.ID != id {
		t.Errorf("created %s in state %v", *created.ID, state)
	}

	value := "b"
	update := must.Get(client.BeginUpdateByID(ctx, id, newestVersion, armresources.GenericResource{Tags: map[string]*string{"a": &value}}, nil))(t)
	updated := must.Get(update.PollUntilDone(ctx, fast))(t)
	if updated.Tags["a"] == nil || *updated.Tags["a"] != value {
		t.Errorf("updated to the tags %v", updated.Tags)
	}

	remove := must.Get(client.BeginDeleteByID(ctx, id, newestVersion, nil))(t)
	must.Get(remove.PollUntilDone(ctx, fast))(t)
	var gone *azcore.ResponseError
	if _, err := client.GetByID(ctx, id, newestVersion, nil); !errors.As(err, &gone) || gone.StatusCode != http.StatusNotFound || gone.ErrorCode != "ResourceNotFound" {
		t.Errorf("after the deletion: %v", err)
	}
}
