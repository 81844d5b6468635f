package database

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// workloadCredential returns the credential of this process's workload identity. Its environment has AZURE_CLIENT_ID, AZURE_TENANT_ID,
// AZURE_AUTHORITY_HOST and AZURE_FEDERATED_TOKEN_FILE, as the webhook of Azure workload identity sets them. The file is read again
// before the credential requests a token, so that it may be replaced at any time.
func workloadCredential(roots *certfile.Roots) (azcore.TokenCredential, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	credential, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: azcore.ClientOptions{
			Transport: &http.Client{Transport: trusting(roots, transport)},
			// This package retries, within the caller's time.
			Retry: policy.RetryOptions{MaxRetries: -1},
		},
		// The environment's authority is trusted. Discovery would ask Microsoft about it.
		DisableInstanceDiscovery: true,
	})
	if err != nil {
		return nil, fmt.Errorf("the workload identity of this process for Cosmos DB: %w", err)
	}
	return credential, nil
}

// tokenSource makes failures to get a token recognizable.
type tokenSource struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (s tokenSource) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := s.TokenCredential.GetToken(ctx, options)
	if err != nil {
		return azcore.AccessToken{}, &tokenError{err}
	}
	return token, nil
}

// tokenError is the error of a request that was not sent, because there was no token for it.
type tokenError struct{ err error }

// Error implements error.
func (e *tokenError) Error() string { return "getting a token for Cosmos DB: " + e.err.Error() }

// Unwrap returns the credential's error.
func (e *tokenError) Unwrap() error { return e.err }

// NonRetriable marks the error for azcosmos, which must not repeat the request.
func (e *tokenError) NonRetriable() {}

// notSent reports whether a request failed before it was sent.
func notSent(err error) bool {
	var missing *tokenError
	return errors.As(err, &missing)
}
