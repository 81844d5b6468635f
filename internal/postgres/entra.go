package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// tokenTimeout bounds the request of a token, for an endpoint that does not respond.
const tokenTimeout = 10 * time.Second

// publicAuthority is the host of Entra ID if AZURE_AUTHORITY_HOST names no other.
const publicAuthority = "https://login.microsoftonline.com/"

// entraTokens requests tokens for a workload identity. It is safe for concurrent use.
type entraTokens struct {
	credential azcore.TokenCredential
	scope      string
	// role, identity and endpoint are named in errors: the role of the session, the client ID and the URL of the token endpoint.
	role, identity, endpoint string
}

// workloadTokens returns the tokens of this process's workload identity. Its environment has AZURE_CLIENT_ID, AZURE_TENANT_ID and
// AZURE_FEDERATED_TOKEN_FILE, and AZURE_AUTHORITY_HOST if Entra ID is not that of the public cloud, as the webhook of Azure workload
// identity sets them. The file is read again when it may have been replaced.
func workloadTokens(audience, caFile, role string) (*entraTokens, error) {
	for _, name := range []string{"AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"} {
		if os.Getenv(name) == "" {
			return nil, fmt.Errorf("--database-authentication: entra needs a workload identity, and the environment has no %s", name)
		}
	}
	client, err := certfile.NewClient(caFile, http.DefaultTransport.(*http.Transport).Clone())
	if err != nil {
		return nil, fmt.Errorf("--database-token-ca-file: %w", err)
	}
	return newTokens(audience, role, client)
}

func newTokens(audience, role string, client policy.Transporter) (*entraTokens, error) {
	credential, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		// Whoever opens the session retries, within its time.
		ClientOptions: azcore.ClientOptions{Transport: recorder{client}, Retry: policy.RetryOptions{MaxRetries: -1}},
		// The environment's authority is trusted. Discovery would ask Microsoft about it.
		DisableInstanceDiscovery: true,
	})
	if err != nil {
		return nil, fmt.Errorf("--database-authentication: the workload identity of this process: %w", err)
	}
	authority := os.Getenv("AZURE_AUTHORITY_HOST")
	if authority == "" {
		authority = publicAuthority
	}
	return &entraTokens{credential: credential, scope: audience + "/.default", role: role, identity: os.Getenv("AZURE_CLIENT_ID"),
		endpoint: strings.TrimSuffix(authority, "/") + "/" + os.Getenv("AZURE_TENANT_ID") + "/oauth2/v2.0/token"}, nil
}

// password returns a token for the next session. The credential caches a token until five minutes before its end.
func (e *entraTokens) password(ctx context.Context) (string, error) {
	var last exchange
	limited, cancel := context.WithTimeout(context.WithValue(ctx, exchangeKey{}, &last), tokenTimeout)
	defer cancel()
	token, err := e.credential.GetToken(limited, policy.TokenRequestOptions{Scopes: []string{e.scope}})
	if err == nil {
		return token.Token, nil
	}
	failed := &TokenError{Role: e.role, Identity: e.identity, Endpoint: e.endpoint, Reason: tokenFailure(err, &last)}
	switch {
	case ctx.Err() != nil:
		failed.Reason, failed.err = ctx.Err().Error(), ctx.Err()
	case limited.Err() != nil:
		failed.Reason, failed.err = "no response within "+tokenTimeout.String(), limited.Err()
	}
	return "", failed
}

// TokenError reports that a session was not opened because there is no token for it. It may succeed later: the endpoint was not reached,
// or does not know the identity yet.
type TokenError struct {
	// Role is the role of the session, Identity the client ID of the workload identity, Endpoint the URL that should issue its token.
	Role, Identity, Endpoint string
	// Reason contains neither a token nor a response.
	Reason string
	err    error
}

// Error implements error.
func (e *TokenError) Error() string {
	return fmt.Sprintf("getting an Entra token of the identity %s for the PostgreSQL role %s from %s: %s", e.Identity, e.Role, e.Endpoint, e.Reason)
}

// Unwrap returns the error of the context, if its end was the reason.
func (e *TokenError) Unwrap() error { return e.err }

// exchange is a request with its outcome. Status is 0 without a response.
type exchange struct {
	host, path string
	status     int
	err        error
}

type exchangeKey struct{}

// recorder stores the last request of a context in the exchange that it has. azidentity's errors have neither the status nor the cause
// of a failed request for the endpoints of Entra ID, which precedes the first one for a token.
type recorder struct{ next policy.Transporter }

// Do implements policy.Transporter. The requests of one call of password follow one another.
func (t recorder) Do(request *http.Request) (*http.Response, error) {
	response, err := t.next.Do(request)
	if last, ok := request.Context().Value(exchangeKey{}).(*exchange); ok {
		*last = exchange{host: request.URL.Host, path: request.URL.Path, err: err}
		if response != nil {
			last.status = response.StatusCode
		}
	}
	return response, err
}

// oauthCode matches an error code of OAuth 2.0 (RFC 6749, section 5.2).
var oauthCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// tokenFailure returns why azidentity got no token. The texts of azidentity and MSAL quote responses, which may contain a token: so only
// the status and the codes of a response are used.
func tokenFailure(err error, last *exchange) string {
	forToken := strings.HasSuffix(last.path, "/token")
	switch {
	case last.err != nil:
		return last.err.Error()
	case last.status == 0 || last.status < http.StatusBadRequest && !forToken:
		// The failure came before the request, for example because a file is missing. MSAL quotes responses after the first line.
		line, _, _ := strings.Cut(err.Error(), "\n")
		return line
	case last.status < http.StatusBadRequest:
		return fmt.Sprintf("HTTP status %d, and the response is no token", last.status)
	case !forToken:
		return fmt.Sprintf("HTTP status %d from https://%s%s", last.status, last.host, last.path)
	}
	reason := fmt.Sprintf("HTTP status %d", last.status)
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok && failed.RawResponse != nil {
		reason += responseCodes(failed.RawResponse)
	}
	return reason
}

// responseCodes returns the error codes in a response of Entra ID.
func responseCodes(response *http.Response) (codes string) {
	var body struct {
		Error string `json:"error"`
		Codes []int  `json:"error_codes"`
	}
	text, err := runtime.Payload(response)
	if err != nil || json.Unmarshal(text, &body) != nil {
		return ""
	}
	if oauthCode.MatchString(body.Error) {
		codes = ", " + body.Error
	}
	for _, code := range body.Codes {
		codes += fmt.Sprintf(", AADSTS%d", code)
	}
	return codes
}
