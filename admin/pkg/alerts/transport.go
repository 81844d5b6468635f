package alerts

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// Check returns an error unless text is the URL of an API of Prometheus. With a scope, requests carry a token, so the URL must use HTTPS.
func Check(text, scope string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil:
		return fmt.Errorf("%q is not an http or https URL", text)
	case scope != "" && u.Scheme != "https":
		return fmt.Errorf("%q is not an https URL, and would get the token in clear", text)
	}
	return nil
}

// Transport returns a transport that verifies certificates. If scope is not empty, each request carries a token of this process's workload
// identity with that scope, as Azure Monitor workspaces require.
func Transport(scope string) (http.RoundTripper, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if scope == "" {
		return base, nil
	}
	credential, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{DisableInstanceDiscovery: true})
	if err != nil {
		return nil, fmt.Errorf("the workload identity of this process for Prometheus: %w", err)
	}
	return &authorized{base, credential, scope}, nil
}

// authorized adds tokens to requests.
type authorized struct {
	next       http.RoundTripper
	credential azcore.TokenCredential
	scope      string
}

// RoundTrip implements http.RoundTripper.
func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.credential.GetToken(r.Context(), policy.TokenRequestOptions{Scopes: []string{a.scope}})
	if err != nil {
		return nil, fmt.Errorf("getting a token for Prometheus: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token.Token)
	return a.next.RoundTrip(r)
}
