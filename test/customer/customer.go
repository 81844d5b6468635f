// Package customer implements a customer of the region for tests and benchmarks: a subscription, a resource group and the
// unmodified published ARM client. It communicates only with ARM.
package customer

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/traffic"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// APIVersion is the api-version of all requests.
const APIVersion = "2026-09-01-preview"

// Customer owns a subscription and uses the published ARM client.
type Customer struct {
	endpoints local.Endpoints
	// Subscription is the subscription ID.
	Subscription  string
	resourceGroup string
	// Resources is the published client.
	Resources *armresources.Client
	// FastPolling makes the customer poll operations every few milliseconds at first, which no published poller does. It is for
	// measurements, and for tests that do not test the pollers.
	FastPolling bool
	// Credential provides the tokens of the customer.
	Credential azcore.TokenCredential
	groups     *armresources.ResourceGroupsClient
	providers  *armresources.ProvidersClient
	// pipeline is that of the client, for requests that armresources has no method for.
	pipeline runtime.Pipeline
	http     *http.Client
	traffic  *traffic.Recorder
}

// New creates a subscription, registers the resource provider in it and creates a resource group.
func New(ctx context.Context, endpoints local.Endpoints, subscription, resourceGroup string) (*Customer, error) {
	client, err := NewHTTPClient(endpoints.CAFile)
	if err != nil {
		return nil, err
	}
	recorder, err := traffic.FromEnvironment("customer")
	if err != nil {
		return nil, err
	}
	client.Transport = recorder.Transport(client.Transport)
	c := &Customer{endpoints: endpoints, Subscription: subscription, resourceGroup: resourceGroup, http: client, traffic: recorder}

	credential, err := newCredential(endpoints, endpoints.CredentialsFile, c.http)
	if err != nil {
		return nil, err
	}
	c.Credential = credential
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
		return nil, err
	}
	c.Resources, c.groups, c.providers = factory.NewClient(), factory.NewResourceGroupsClient(), factory.NewProvidersClient()
	core, err := arm.NewClient("hcpmesh-test", "v1.0.0", credential, options)
	if err != nil {
		return nil, err
	}
	c.pipeline = core.Pipeline()

	if err := c.createSubscription(ctx); err != nil {
		return nil, fmt.Errorf("creating the subscription: %w", err)
	}
	if _, err := c.providers.Register(ctx, "Microsoft.RedHatOpenShift", nil); err != nil {
		return nil, fmt.Errorf("registering the provider: %w", err)
	}
	if _, err := c.groups.CreateOrUpdate(ctx, resourceGroup, armresources.ResourceGroup{Location: to.Ptr(endpoints.Location)}, nil); err != nil {
		return nil, fmt.Errorf("creating the resource group: %w", err)
	}
	return c, nil
}

// Close closes the traffic recorder, if there is one.
func (c *Customer) Close() error { return c.traffic.Close() }

// NewHTTPClient returns a client that trusts only the certificate authorities in a file, which can change meanwhile.
func NewHTTPClient(authorityFile string) (*http.Client, error) {
	roots, err := certfile.LoadRoots(authorityFile)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.MaxIdleConnsPerHost = 64
	return &http.Client{Transport: roots.Transport(transport)}, nil
}

// NewEngineer returns a client of admin with the credential of an engineer, for tests of what customers do not see.
func NewEngineer(e local.Endpoints, name string) (*adminclient.Client, error) {
	return adminclient.New(adminclient.Options{Endpoint: e.Admin, Authority: e.ARM, CAFile: e.CAFile, CredentialsFile: e.EngineersFile, Engineer: name, Audience: e.AdminAudience})
}

// createSubscription creates the subscription at the front door. In Azure it exists before all resources.
func (c *Customer) createSubscription(ctx context.Context) error {
	request, err := runtime.NewRequest(ctx, http.MethodPut, c.endpoints.ARM+"/subscriptions/"+c.Subscription+"?api-version=2022-12-01")
	if err != nil {
		return err
	}
	if err := runtime.MarshalAsJSON(request, map[string]string{"displayName": "Test"}); err != nil {
		return err
	}
	response, err := c.pipeline.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return runtime.NewResponseError(response)
	}
	return nil
}

// GroupID returns the ID of the resource group.
func (c *Customer) GroupID() string {
	return "/subscriptions/" + c.Subscription + "/resourceGroups/" + c.resourceGroup
}

// ClusterID returns the resource ID of a cluster.
func (c *Customer) ClusterID(name string) string {
	return c.GroupID() + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
}

// NodePoolID returns the resource ID of a node pool.
func (c *Customer) NodePoolID(cluster, name string) string {
	return c.ClusterID(cluster) + "/nodePools/" + name
}

// The operators that require identities.
var (
	controlPlaneOperators = []string{"cluster-api-azure", "control-plane", "cloud-controller-manager", "ingress", "disk-csi-driver", "file-csi-driver", "image-registry", "cloud-network-config", "kms"}
	dataPlaneOperators    = []string{"disk-csi-driver", "file-csi-driver", "image-registry"}
)

// ClusterBody returns a valid cluster. Each name has its own virtual network, so that clusters do not conflict.
func (c *Customer) ClusterBody(name string) armresources.GenericResource {
	identity := func(role string) string {
		return c.GroupID() + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/" + name + "-" + role
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
	network := c.GroupID() + "/providers/Microsoft.Network/"
	return armresources.GenericResource{
		Location: to.Ptr(c.endpoints.Location),
		Tags:     map[string]*string{"made-by": to.Ptr("e2e")},
		Identity: &armresources.Identity{Type: to.Ptr(armresources.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: assigned},
		Properties: map[string]any{
			"version": map[string]any{"id": "4.21", "channelGroup": "stable"},
			"etcd":    Etcd("1"),
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

// Etcd returns the encryption of etcd with a version of the customer's key.
func Etcd(keyVersion string) map[string]any {
	return map[string]any{"dataEncryption": map[string]any{"keyManagementMode": "CustomerManaged", "customerManaged": map[string]any{
		"encryptionType": "KMS", "kms": map[string]any{"vaultName": "vault", "visibility": "Public",
			"activeKey": map[string]any{"name": "secrets", "version": keyVersion}}}}}
}

// ClusterBodyOf2024 returns what ClusterBody returns in the form of 2024-06-10-preview: without the subnet for the integration
// with the virtual network, and with the vault as a property of the key.
func (c *Customer) ClusterBodyOf2024(name string) armresources.GenericResource {
	body := c.ClusterBody(name)
	properties := body.Properties.(map[string]any)
	delete(properties["platform"].(map[string]any), "vnetIntegrationSubnetId")
	properties["etcd"] = map[string]any{"dataEncryption": map[string]any{"keyManagementMode": "CustomerManaged", "customerManaged": map[string]any{
		"encryptionType": "KMS", "kms": map[string]any{
			"activeKey": map[string]any{"vaultName": "vault", "name": "secrets", "version": "1"}}}}}
	return body
}

// nodeVersion is the oldest release of node pools. It fits every control plane up to 4.22.
const nodeVersion = "4.20.8"

// NodePoolBody returns a valid node pool with the given number of nodes.
func (c *Customer) NodePoolBody(replicas int) armresources.GenericResource {
	return armresources.GenericResource{
		Location: to.Ptr(c.endpoints.Location),
		Properties: map[string]any{
			"version":  map[string]any{"id": nodeVersion, "channelGroup": "stable"},
			"platform": map[string]any{"vmSize": "Standard_D8s_v3"},
			"replicas": replicas,
		},
	}
}

// Put creates or replaces a resource and waits until the operation is terminal.
func (c *Customer) Put(ctx context.Context, id string, body armresources.GenericResource) (armresources.GenericResource, error) {
	poller, err := c.Resources.BeginCreateOrUpdateByID(ctx, id, APIVersion, body, nil)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("PUT %s: %w", id, err)
	}
	response, err := wait(ctx, c, poller)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("waiting for the PUT of %s: %w", id, err)
	}
	return response.GenericResource, nil
}

// Patch merges properties or tags into a resource and waits until the operation is terminal.
func (c *Customer) Patch(ctx context.Context, id string, body armresources.GenericResource) (armresources.GenericResource, error) {
	poller, err := c.Resources.BeginUpdateByID(ctx, id, APIVersion, body, nil)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("PATCH %s: %w", id, err)
	}
	response, err := wait(ctx, c, poller)
	if err != nil {
		return armresources.GenericResource{}, fmt.Errorf("waiting for the PATCH of %s: %w", id, err)
	}
	return response.GenericResource, nil
}

// Delete deletes a resource and waits until the operation is terminal.
func (c *Customer) Delete(ctx context.Context, id string) error {
	poller, err := c.Resources.BeginDeleteByID(ctx, id, APIVersion, nil)
	if err != nil {
		return fmt.Errorf("DELETE %s: %w", id, err)
	}
	if _, err := wait(ctx, c, poller); err != nil {
		return fmt.Errorf("waiting for the DELETE of %s: %w", id, err)
	}
	return nil
}

// List reads all pages of a collection and returns the names of the resources.
func (c *Customer) List(ctx context.Context, collection string) ([]string, error) {
	var names []string
	for next := c.endpoints.ARM + collection + "?api-version=" + APIVersion; next != ""; {
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
