// Package emulatortest runs the emulator in a test, with TLS and an authority that issues tokens, and provides the
// options for the SDK's clients. A test can close the emulator and start another one with the same data.
package emulatortest

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/entra/entratest"
	azurearm "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// Subscription is the service's subscription in tests.
const Subscription = "99999999-0000-4000-8000-000000000001"

// Group is the ARM ID of the service's resource group in Subscription.
const Group = "/subscriptions/" + Subscription + "/resourceGroups/region"

// Azure is a running emulator.
type Azure struct {
	*emulator.Emulator
	// URL is the base URL of all services.
	URL string
	// Tokens is the credential for clients.
	Tokens *entratest.Issuer

	server *httptest.Server
	cancel context.CancelFunc
	group  sync.WaitGroup
}

// Seed returns the service's own resources: its resource group, a DNS zone and a container for OpenID documents.
func Seed(zone string) emulator.Seed {
	return emulator.Seed{
		Resources: []emulator.SeedResource{
			{ID: Group, APIVersion: "2021-04-01", Location: "westus3"},
			{ID: Group + "/providers/Microsoft.Network/dnsZones/" + zone, APIVersion: "2018-05-01", Location: "global"},
		},
		ResourceProviders: []string{entratest.ObjectID},
		Vault:             Vault,
		Issuers:           []string{"OneCertV2-PublicCA"},
		Containers:        []emulator.SeedContainer{{Account: "oidc", AccountID: Account, Name: "issuers", Access: "blob"}},
	}
}

// Vault and Account are the resource IDs of the service's vault and storage account.
const (
	Vault   = Group + "/providers/Microsoft.KeyVault/vaults/region"
	Account = Group + "/providers/Microsoft.Storage/storageAccounts/oidc"
)

// Owner returns the assignments with which a principal may do everything: Owner has no rights on data.
func Owner(principal string) []azurearm.SeedAssignment {
	var all []azurearm.SeedAssignment
	for _, role := range []string{azurearm.OwnerRole, azurearm.VaultAdministratorRole, azurearm.BlobDataContributorRole} {
		all = append(all, azurearm.SeedAssignment{PrincipalID: principal, Role: role, Scope: "/"})
	}
	return all
}

// Start starts an emulator. It overwrites the Tokens, EnableFaults and Tenant of options. The principal of Tokens may do everything,
// unless the seed has role assignments.
func Start(options emulator.Options) (*Azure, error) {
	tokens, err := entratest.Start()
	if err != nil {
		return nil, err
	}
	options.Tokens = &entra.Verifier{Authority: tokens.Authority(), Client: http.DefaultClient}
	options.EnableFaults, options.Tenant = true, entratest.Tenant
	if options.Seed.Assignments == nil {
		options.Seed.Assignments = Owner(entratest.ObjectID)
	}
	opened, err := emulator.Open(options)
	if err != nil {
		tokens.Close()
		return nil, err
	}
	a := &Azure{Emulator: opened, Tokens: tokens, server: httptest.NewUnstartedServer(opened)}
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	a.URL = a.server.URL
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.group.Go(func() { opened.Run(ctx) })
	return a, nil
}

// Close stops the emulator.
func (a *Azure) Close() error {
	a.server.Close()
	a.cancel()
	a.group.Wait()
	a.Tokens.Close()
	return errors.Join(a.Emulator.Close())
}

// HTTP returns a client that trusts the emulator's certificate.
func (a *Azure) HTTP() *http.Client { return a.server.Client() }

// Send sends a request to a path with a query as a principal, and returns the status and the body of the response. A PUT of a blob creates a
// block blob.
func (a *Azure) Send(ctx context.Context, principal azcore.TokenCredential, audience, method, path, body string) (status int, text string, err error) {
	token, err := principal.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}})
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+token.Token)
	request.Header.Set("x-ms-blob-type", "BlockBlob")
	response, err := a.HTTP().Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// Certificate returns the emulator's certificate, for clients in other processes.
func (a *Azure) Certificate() *x509.Certificate { return a.server.Certificate() }

// Options returns the options for the SDK's clients. The clients do not retry, so that tests observe each error.
func (a *Azure) Options() *arm.ClientOptions {
	return &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud: cloud.Configuration{Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
				cloud.ResourceManager: {Endpoint: a.URL, Audience: "https://management.azure.com"},
			}},
			Transport: a.HTTP(),
			Retry:     policy.RetryOptions{MaxRetries: -1, RetryDelay: time.Millisecond},
		},
		DisableRPRegistration: true,
	}
}
