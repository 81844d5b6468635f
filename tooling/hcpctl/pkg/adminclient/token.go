package adminclient

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
)

// newPipeline returns a pipeline whose requests have a token for an audience. If admin rejects the token with a claims challenge, the
// pipeline requests a token with these claims and sends the request again, once. It repeats no other request: the callers know which
// requests may be repeated.
func newPipeline(credential azcore.TokenCredential, audience string, client *http.Client) runtime.Pipeline {
	authenticate := runtime.NewBearerTokenPolicy(tokenSource{credential}, []string{audience + "/.default"}, nil)
	return runtime.NewPipeline("hcpctl", "", runtime.PipelineOptions{PerRetry: []policy.Policy{authenticate}}, &policy.ClientOptions{
		Transport: client, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{Disabled: true},
	})
}

// newCredential returns the credential of a person who signed in, of an engineer of the credentials file, or of the Azure CLI.
func newCredential(options Options, client *http.Client) (azcore.TokenCredential, error) {
	if options.Credential != nil {
		return options.Credential, nil
	}
	if options.CredentialsFile != "" {
		return armclient.NewCredential(options.Authority, options.CredentialsFile, options.Engineer, client)
	}
	cli, err := azidentity.NewAzureCLICredential(nil)
	if err != nil {
		return nil, fmt.Errorf("using the Azure CLI: %w", err)
	}
	return azureCLI{cli}, nil
}

// azureCLI requests tokens of the person who is signed in to the Azure CLI. The CLI cannot sign in with other claims for another program.
type azureCLI struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (c azureCLI) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if options.Claims == "" {
		return c.TokenCredential.GetToken(ctx, options)
	}
	return azcore.AccessToken{}, fmt.Errorf("the Azure CLI does not sign in for other programs; run `az login --scope %s --claims-challenge %s`, then repeat the command",
		strings.Join(options.Scopes, " "), base64.StdEncoding.EncodeToString([]byte(options.Claims)))
}

// tokenSource is a credential whose errors name admin.
type tokenSource struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (s tokenSource) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := s.TokenCredential.GetToken(ctx, options)
	switch {
	case err == nil:
		return token, nil
	case options.Claims != "":
		err = fmt.Errorf("admin requires that you sign in with the claims %s, which failed: %w", claimNames(options.Claims), err)
	default:
		err = fmt.Errorf("requesting a token for admin: %w", err)
	}
	return azcore.AccessToken{}, &tokenError{err}
}

// tokenError is the error of a request that was not sent, because there was no token for it.
type tokenError struct{ err error }

// Error implements error.
func (e *tokenError) Error() string { return e.err.Error() }

// Unwrap returns the credential's error.
func (e *tokenError) Unwrap() error { return e.err }

// claimNames returns the claims of a claims request of OpenID Connect for messages, for example acrs=c1, amr=mfa.
func claimNames(request string) string {
	var asked struct {
		Token map[string]struct {
			Value string `json:"value"`
		} `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(request), &asked); err != nil || len(asked.Token) == 0 {
		return fmt.Sprintf("%q", request)
	}
	var names []string
	for name, claim := range asked.Token {
		if claim.Value != "" {
			name += "=" + claim.Value
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
