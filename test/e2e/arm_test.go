package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
)

// apiVersion is the version that the customer speaks.
const apiVersion = "2026-09-01-preview"

// customer is somebody with a subscription and the published ARM client.
type customer struct {
	endpoints     local.Endpoints
	subscription  string
	resourceGroup string
	resources     *armresources.Client
	groups        *armresources.ResourceGroupsClient
	providers     *armresources.ProvidersClient
	// pipeline is the client's own, for lists that armresources has no method for.
	pipeline runtime.Pipeline
	http     *http.Client
}

// newCustomer registers the provider in a subscription and makes a resource group there.
func newCustomer(t testing.TB, endpoints local.Endpoints, subscription, resourceGroup string) *customer {
	t.Helper()
	client, err := trusting(endpoints.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	c := &customer{endpoints: endpoints, subscription: subscription, resourceGroup: resourceGroup, http: client}

	credential, err := newCredential(endpoints, c.http)
	if err != nil {
		t.Fatal(err)
	}
	options := &arm.ClientOptions{ClientOptions: policy.ClientOptions{
		Cloud: cloud.Configuration{
			ActiveDirectoryAuthorityHost: endpoints.ARM,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: endpoints.ARM, Audience: "https://management.azure.com"},
			},
		},
		Transport: c.http,
		Retry:     policy.RetryOptions{MaxRetries: 20, RetryDelay: 50 * time.Millisecond, MaxRetryDelay: time.Second},
	}}
	factory, err := armresources.NewClientFactory(subscription, credential, options)
	if err != nil {
		t.Fatal(err)
	}
	c.resources, c.groups, c.providers = factory.NewClient(), factory.NewResourceGroupsClient(), factory.NewProvidersClient()
	core, err := arm.NewClient("hcpmesh-test", "v1.0.0", credential, options)
	if err != nil {
		t.Fatal(err)
	}
	c.pipeline = core.Pipeline()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.providers.Register(ctx, "Microsoft.RedHatOpenShift", nil); err != nil {
		t.Fatalf("registering the provider: %v", err)
	}
	if _, err := c.groups.CreateOrUpdate(ctx, resourceGroup, armresources.ResourceGroup{Location: to.Ptr(endpoints.Location)}, nil); err != nil {
		t.Fatalf("making the resource group: %v", err)
	}
	return c
}

// trusting makes a client that trusts the authority in a file and nobody else.
func trusting(authorityFile string) (*http.Client, error) {
	authority, err := os.ReadFile(authorityFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s holds no certificate", authorityFile)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	transport.MaxIdleConnsPerHost = 64
	return &http.Client{Transport: transport}, nil
}

func (c *customer) groupID() string {
	return "/subscriptions/" + c.subscription + "/resourceGroups/" + c.resourceGroup
}

func (c *customer) clusterID(name string) string {
	return c.groupID() + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
}

func (c *customer) nodePoolID(cluster, name string) string {
	return c.clusterID(cluster) + "/nodePools/" + name
}

// The operators that need an identity of their own.
var (
	controlPlaneOperators = []string{"cluster-api-azure", "control-plane", "cloud-controller-manager", "ingress", "disk-csi-driver", "file-csi-driver", "image-registry", "cloud-network-config"}
	dataPlaneOperators    = []string{"disk-csi-driver", "file-csi-driver", "image-registry"}
)

// clusterBody is a cluster that passes every rule. Its network is its own, so that clusters do not collide.
func (c *customer) clusterBody(name string) armresources.GenericResource {
	identity := func(role string) string {
		return c.groupID() + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/" + name + "-" + role
	}
	controlPlane, dataPlane := map[string]string{}, map[string]string{}
	assigned := map[string]*armresources.IdentityUserAssignedIdentitiesValue{identity("service"): {}}
	for _, operator := range controlPlaneOperators {
		id := identity("cp-" + operator)
		controlPlane[operator], assigned[id] = id, &armresources.IdentityUserAssignedIdentitiesValue{}
	}
	for _, operator := range dataPlaneOperators {
		dataPlane[operator] = identity("dp-" + operator)
	}
	network := c.groupID() + "/providers/Microsoft.Network/"
	return armresources.GenericResource{
		Location: to.Ptr(c.endpoints.Location),
		Tags:     map[string]*string{"made-by": to.Ptr("e2e")},
		Identity: &armresources.Identity{Type: to.Ptr(armresources.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: assigned},
		Properties: map[string]any{
			"version": map[string]any{"id": "4.21", "channelGroup": "stable"},
			"platform": map[string]any{
				"subnetId":                network + "virtualNetworks/" + name + "/subnets/workers",
				"vnetIntegrationSubnetId": network + "virtualNetworks/" + name + "/subnets/integration",
				"networkSecurityGroupId":  network + "networkSecurityGroups/" + name,
				"operatorsAuthentication": map[string]any{"userAssignedIdentities": map[string]any{
					"controlPlaneOperators":  controlPlane,
					"dataPlaneOperators":     dataPlane,
					"serviceManagedIdentity": identity("service"),
				}},
			},
		},
	}
}

func (c *customer) nodePoolBody(replicas int) armresources.GenericResource {
	return armresources.GenericResource{
		Location: to.Ptr(c.endpoints.Location),
		Properties: map[string]any{
			"platform": map[string]any{"vmSize": "Standard_D8s_v3"},
			"replicas": replicas,
		},
	}
}

// pollQuickly makes the published pollers ask often: what is measured in minutes in the cloud takes seconds here.
var pollQuickly = &runtime.PollUntilDoneOptions{Frequency: 50 * time.Millisecond}

// put creates or replaces a resource and waits for the operation's end.
func (c *customer) put(ctx context.Context, id string, body armresources.GenericResource) (armresources.GenericResource, error) {
	poller, err := c.resources.BeginCreateOrUpdateByID(ctx, id, apiVersion, body, nil)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("PUT %s: %w", id, err)
	}
	response, err := poller.PollUntilDone(ctx, pollQuickly)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("waiting for the PUT of %s: %w", id, err)
	}
	return response.GenericResource, nil
}

// patch merges properties or tags into a resource and waits for the operation's end.
func (c *customer) patch(ctx context.Context, id string, body armresources.GenericResource) (armresources.GenericResource, error) {
	poller, err := c.resources.BeginUpdateByID(ctx, id, apiVersion, body, nil)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("PATCH %s: %w", id, err)
	}
	response, err := poller.PollUntilDone(ctx, pollQuickly)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("waiting for the PATCH of %s: %w", id, err)
	}
	return response.GenericResource, nil
}

// remove deletes a resource and waits for the operation's end.
func (c *customer) remove(ctx context.Context, id string) error {
	poller, err := c.resources.BeginDeleteByID(ctx, id, apiVersion, nil)
	if err != nil {
		return fmt.Errorf("DELETE %s: %w", id, err)
	}
	if _, err := poller.PollUntilDone(ctx, pollQuickly); err != nil {
		return fmt.Errorf("waiting for the DELETE of %s: %w", id, err)
	}
	return nil
}

// list reads all pages of a collection through the client's pipeline and returns the resources' names.
func (c *customer) list(ctx context.Context, collection string) ([]string, error) {
	var names []string
	for next := c.endpoints.ARM + collection + "?api-version=" + apiVersion; next != ""; {
		request, err := runtime.NewRequest(ctx, http.MethodGet, next)
		if err != nil {
			return nil, err
		}
		response, err := c.pipeline.Do(request)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK {
			return nil, runtime.NewResponseError(response)
		}
		var page struct {
			Value    []armresources.GenericResource `json:"value"`
			NextLink string                         `json:"nextLink"`
		}
		if err := runtime.UnmarshalAsJSON(response, &page); err != nil {
			return nil, err
		}
		for _, resource := range page.Value {
			names = append(names, *resource.Name)
		}
		next = page.NextLink
	}
	return names, nil
}

// property reads a value below properties by its path; nil when it is absent.
func property(t *testing.T, resource armresources.GenericResource, path ...string) any {
	t.Helper()
	// The client leaves properties as it decoded them; a round trip gives plain maps.
	data, err := json.Marshal(resource.Properties)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}
