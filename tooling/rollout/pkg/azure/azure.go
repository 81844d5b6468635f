// Package azure holds the actions that call Azure: Certificate and DNSDelegation.
//
// Both read the current state first and write only what differs, so a repeated action changes nothing.
package azure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// Connection is the access to Azure.
type Connection struct {
	Credential azcore.TokenCredential
	// Options are those of all clients.
	Options *arm.ClientOptions
	// AnyVault accepts vaults whose names are not those of Azure's. It is for emulators.
	AnyVault bool
}

// Connect returns a connection to the cloud with a Resource Manager and an authority for tokens. The credential is that of the
// environment: a workload identity, a managed identity or an engineer's login with the command line of Azure. Connect sends no request.
func Connect(resourceManager, authority string, client *http.Client) (Connection, error) {
	options := policy.ClientOptions{Transport: client, Cloud: cloud.Configuration{
		ActiveDirectoryAuthorityHost: authority,
		Services:                     map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: resourceManager, Audience: resourceManager}},
	}}
	credential, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: options})
	if err != nil {
		return Connection{}, fmt.Errorf("finding the credential for Azure: %w", err)
	}
	return Connection{Credential: credential, Options: &arm.ClientOptions{ClientOptions: options, DisableRPRegistration: true}}, nil
}

// Actions returns the actions of the package by name.
func Actions(c Connection) map[string]action.Action {
	return map[string]action.Action{"Certificate": Certificate{c}, "DNSDelegation": DNSDelegation{c}}
}

// classified returns an error with its class. The text names what was done.
func classified(what string, err error) error {
	wrapped := fmt.Errorf("%s: %w", what, err)
	var response *azcore.ResponseError
	var network net.Error
	switch {
	case errors.As(err, &response):
		// The error of the library has several lines with the whole response.
		return &action.Error{Class: action.ClassOfStatus(response.StatusCode), Err: fmt.Errorf("%s: %d %s", what, response.StatusCode, response.ErrorCode)}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return wrapped
	case errors.As(err, &network):
		return &action.Error{Class: action.Unavailable, Err: wrapped}
	}
	return wrapped
}

// hasStatus reports whether an error is a response with a status.
func hasStatus(err error, status int) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == status
}

func isNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }
