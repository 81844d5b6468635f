package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/msi-dataplane/pkg/dataplane"
	"github.com/go-logr/logr"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// requestTimeout bounds one request.
const requestTimeout = 20 * time.Second

// SDK implements Clients with the clients of the Azure SDK.
type SDK struct {
	config     config.AzureResources
	credential azcore.TokenCredential
	options    policy.ClientOptions
	// secrets returns the client of the vault with the credentials of identities, and certificates that of the service's vault. They are shared,
	// because each client sends a request without a token first.
	secrets      func() (*azsecrets.Client, error)
	certificates func() (*azcertificates.Client, error)
}

var _ Clients = (*SDK)(nil)

// NewSDK returns clients with a credential and a transport. A nil transport is the SDK's own.
func NewSDK(c config.AzureResources, credential azcore.TokenCredential, transport policy.Transporter) *SDK {
	s := &SDK{config: c, credential: credential, options: policy.ClientOptions{
		Cloud:     cloudOf(c),
		Transport: transport,
		// Worker retries steps. It honours Retry-After and shows the wait in the step meanwhile.
		Retry: policy.RetryOptions{MaxRetries: -1, TryTimeout: requestTimeout},
	}}
	s.secrets = sync.OnceValues(func() (*azsecrets.Client, error) {
		return azsecrets.NewClient(c.ManagedIdentities.Vault, credential, &azsecrets.ClientOptions{ClientOptions: s.options, DisableChallengeResourceVerification: c.CAFile != ""})
	})
	s.certificates = sync.OnceValues(func() (*azcertificates.Client, error) {
		// The SDK expects vaults in Microsoft's domains; a vault with its own certificate authority is not in one.
		return azcertificates.NewClient(c.Vault, credential, &azcertificates.ClientOptions{ClientOptions: s.options, DisableChallengeResourceVerification: c.CAFile != ""})
	})
	return s
}

func cloudOf(c config.AzureResources) cloud.Configuration {
	return cloud.Configuration{ActiveDirectoryAuthorityHost: c.Authority, Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
		cloud.ResourceManager: {Endpoint: c.ResourceManager, Audience: c.Audience},
	}}
}

// Connect returns clients for the configuration. They authenticate with the secret in CredentialFile, or with the workload's
// identity when there is no such file.
func Connect(c config.AzureResources) (*SDK, error) {
	transport, err := transportOf(c.CAFile)
	if err != nil {
		return nil, err
	}
	options := policy.ClientOptions{Cloud: cloudOf(c), Transport: transport}
	var credential azcore.TokenCredential
	if c.CredentialFile == "" {
		credential, err = azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: options})
	} else {
		credential, err = secretCredential(c.CredentialFile, options)
	}
	if err != nil {
		return nil, fmt.Errorf("azureResources: %w", err)
	}
	return NewSDK(c, credential, transport), nil
}

// secretCredential reads a file with a JSON list of one client and its secret.
func secretCredential(path string, options policy.ClientOptions) (azcore.TokenCredential, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the credential: %w", err)
	}
	var clients []struct {
		TenantID     string `json:"tenantId"`
		ClientID     string `json:"clientId"`
		ClientSecret string `json:"clientSecret"`
	}
	// The parser's error would quote the secret.
	if json.Unmarshal(text, &clients) != nil || len(clients) != 1 {
		return nil, fmt.Errorf("the credential %s is not a JSON list of one client", path)
	}
	// Instance discovery asks Microsoft about the authority, and fails for authorities that are not Microsoft's.
	return azidentity.NewClientSecretCredential(clients[0].TenantID, clients[0].ClientID, clients[0].ClientSecret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: options, DisableInstanceDiscovery: true})
}

func transportOf(caFile string) (policy.Transporter, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32
	client, err := certfile.NewClient(caFile, transport)
	if err != nil {
		return nil, fmt.Errorf("azureResources.caFile: %w", err)
	}
	return client, nil
}

func (s *SDK) arm() *arm.ClientOptions {
	return &arm.ClientOptions{ClientOptions: s.options, DisableRPRegistration: true}
}

// ResourceGroups returns the client of a subscription's resource groups.
func (s *SDK) ResourceGroups(subscription string) (ResourceGroups, error) {
	return armresources.NewResourceGroupsClient(subscription, s.credential, s.arm())
}

// Zones returns the client of a subscription's DNS zones.
func (s *SDK) Zones(subscription string) (Zones, error) {
	return armdns.NewZonesClient(subscription, s.credential, s.arm())
}

// RecordSets returns the client of the record sets in a subscription's DNS zones.
func (s *SDK) RecordSets(subscription string) (RecordSets, error) {
	return armdns.NewRecordSetsClient(subscription, s.credential, s.arm())
}

// Resources returns a client for resources of a subscription by their IDs.
func (s *SDK) Resources(subscription string) (Resources, error) {
	return armresources.NewClient(subscription, s.credential, s.arm())
}

// Identities returns the client of a subscription's user-assigned identities.
func (s *SDK) Identities(subscription string) (Identities, error) {
	return armmsi.NewUserAssignedIdentitiesClient(subscription, s.credential, s.arm())
}

// FederatedCredentials returns the client of the federated credentials of a subscription's identities.
func (s *SDK) FederatedCredentials(subscription string) (FederatedCredentials, error) {
	return armmsi.NewFederatedIdentityCredentialsClient(subscription, s.credential, s.arm())
}

// RoleAssignments returns the client of the role assignments on scopes in a subscription.
func (s *SDK) RoleAssignments(subscription string) (RoleAssignments, error) {
	return armauthorization.NewRoleAssignmentsClient(subscription, s.credential, s.arm())
}

// RoleDefinitions returns the client of role definitions.
func (s *SDK) RoleDefinitions() (RoleDefinitions, error) {
	return armauthorization.NewRoleDefinitionsClient(s.credential, s.arm())
}

// Compute returns the client of the sizes and quotas of a subscription's virtual machines.
func (s *SDK) Compute(subscription string) (Compute, error) {
	options := s.arm()
	if options.Transport == nil {
		options.Transport = http.DefaultClient
	}
	options.Transport = bounded{options.Transport}
	client, err := arm.NewClient("cluster-service", "v1.0.0", s.credential, options)
	return computeClient{client, subscription}, err
}

// Certificates returns the client of the certificates in the service's vault.
func (s *SDK) Certificates() (Certificates, error) { return s.certificates() }

// IdentityCredentials returns the client of the data plane of managed identities at the identity URL of a cluster. A token for the data plane is
// sent nowhere else.
func (s *SDK) IdentityCredentials(identityURL string) (IdentityCredentials, error) {
	identities := s.config.ManagedIdentities
	u, err := url.Parse(identityURL)
	switch {
	case err != nil || u.Scheme != "https":
		return nil, errors.New("the identity URL that Azure Resource Manager has sent for the cluster is not an https URL")
	case identities.Endpoint != "":
		identityURL = strings.TrimSuffix(identities.Endpoint, "/") + u.EscapedPath() + "?" + u.RawQuery
	case !strings.EqualFold(u.Hostname(), identities.Domain) && !strings.HasSuffix(strings.ToLower(u.Hostname()), "."+strings.ToLower(identities.Domain)):
		return nil, fmt.Errorf("the host %s of the identity URL that Azure Resource Manager has sent for the cluster is not in %s, the domain of the data plane of managed identities", u.Hostname(), identities.Domain)
	}
	discard := logr.Discard()
	return dataplane.NewClientFactory(s.credential, identities.Audience, &s.options, dataplane.WithClientLogger(&discard)).NewClient(identityURL)
}

// Secrets returns the client of the secrets in the vault with the credentials of identities.
func (s *SDK) Secrets() (Secrets, error) { return s.secrets() }

// Documents returns the client of the service's storage account.
func (s *SDK) Documents() (Documents, error) {
	return azblob.NewClient(s.config.Documents.Account, s.credential, &azblob.ClientOptions{ClientOptions: s.options})
}
