package armclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// secret is a client secret in the form of the credentials file.
type secret struct {
	Name         string `json:"name"`
	TenantID     string `json:"tenantId"`
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
}

// credential requests tokens with the client credentials grant of OAuth 2.0. It passes the claims of a claims challenge to the issuer, as
// clients of Entra ID do. The pipeline caches tokens.
type credential struct {
	authority string
	secret    secret
	http      *http.Client
}

// NewCredential reads a client from a credentials file: the first one, or the first with a name that equals name, or that has name
// before the @. It requests tokens from authority.
func NewCredential(authority, path, name string, client *http.Client) (azcore.TokenCredential, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials: %w", err)
	}
	var secrets []secret
	if err := json.Unmarshal(data, &secrets); err != nil || len(secrets) == 0 {
		return nil, fmt.Errorf("%s has no credentials", path)
	}
	var names []string
	for _, secret := range secrets {
		short, _, _ := strings.Cut(secret.Name, "@")
		if name == "" || strings.EqualFold(name, secret.Name) || strings.EqualFold(name, short) {
			return &credential{authority: strings.TrimSuffix(authority, "/"), secret: secret, http: client}, nil
		}
		names = append(names, short)
	}
	return nil, &UnknownCredential{Name: name, File: path, Known: names}
}

// UnknownCredential reports that a credentials file has no client with a name.
type UnknownCredential struct {
	Name, File string
	Known      []string
}

// Error implements error.
func (u *UnknownCredential) Error() string {
	return fmt.Sprintf("%s has no credentials of %q; it has those of %s", u.File, u.Name, strings.Join(u.Known, ", "))
}

// GetToken implements azcore.TokenCredential.
func (c *credential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {c.secret.ClientID}, "client_secret": {c.secret.ClientSecret},
		"scope": {strings.Join(options.Scopes, " ")},
	}
	if options.Claims != "" {
		form.Set("claims", options.Claims)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.authority+"/"+c.secret.TenantID+"/oauth2/v2.0/token", strings.NewReader(form.Encode()))
	if err != nil {
		return azcore.AccessToken{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.http.Do(request)
	if err != nil {
		return azcore.AccessToken{}, unreachable(err)
	}
	defer response.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return azcore.AccessToken{}, fmt.Errorf("getting a token: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return azcore.AccessToken{}, fmt.Errorf("getting a token: %s", answer.Description)
	}
	return azcore.AccessToken{Token: answer.AccessToken, ExpiresOn: time.Now().Add(time.Duration(answer.ExpiresIn) * time.Second)}, nil
}

// unreachable converts a connection error to one sentence. It is not retried, so that a command fails immediately.
func unreachable(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return &Unreachable{cause: failed.Err}
	}
	return &Unreachable{cause: err}
}

// Unreachable reports that no server accepts connections at the endpoint.
type Unreachable struct{ cause error }

// Error implements error.
func (u *Unreachable) Error() string {
	return fmt.Sprintf("Azure Resource Manager is unreachable (%v); check `hcpctl region status`", u.cause)
}

// Unwrap returns the cause.
func (u *Unreachable) Unwrap() error { return u.cause }

// NonRetriable implements azcore's interface to disable retries.
func (u *Unreachable) NonRetriable() {}
