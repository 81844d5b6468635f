package customer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// credential requests tokens from the ARM front door with the OAuth 2.0 client credentials grant, as azidentity does from
// Microsoft Entra ID.
type credential struct {
	authority string
	client    struct {
		TenantID     string `json:"tenantId"`
		ClientID     string `json:"clientId"`
		ClientSecret string `json:"clientSecret"`
	}
	http *http.Client
}

var _ azcore.TokenCredential = (*credential)(nil)

// newCredential reads the first client from a credentials file of the region.
func newCredential(endpoints local.Endpoints, file string, client *http.Client) (*credential, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var clients []json.RawMessage
	if err := json.Unmarshal(data, &clients); err != nil || len(clients) == 0 {
		return nil, fmt.Errorf("%s contains no credentials: %v", file, err)
	}
	c := &credential{authority: endpoints.ARM, http: client}
	return c, json.Unmarshal(clients[0], &c.client)
}

// ARMToken returns a token with which ARM calls the frontend, for tests that call it in place of ARM.
func (c *Customer) ARMToken(ctx context.Context) (string, error) {
	credential, err := newCredential(c.endpoints, c.endpoints.ARMCredentialsFile, c.http)
	if err != nil {
		return "", err
	}
	token, err := credential.getToken(ctx, []string{c.endpoints.ProviderAudience + "/.default"})
	return token.Token, err
}

// tokenRetry is the pause between two attempts to get a token.
const tokenRetry = 100 * time.Millisecond

// GetToken retries until ctx ends, because a test may have killed the front door.
func (c *credential) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	for {
		token, err := c.getToken(ctx, options.Scopes)
		if err == nil {
			return token, nil
		}
		if backoff.Sleep(ctx, tokenRetry) != nil {
			return azcore.AccessToken{}, fmt.Errorf("getting a token: %w", err)
		}
	}
}

func (c *credential) getToken(ctx context.Context, scopes []string) (azcore.AccessToken, error) {
	form := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {c.client.ClientID}, "client_secret": {c.client.ClientSecret},
		"scope": {strings.Join(scopes, " ")},
	}
	address := c.authority + "/" + c.client.TenantID + "/oauth2/v2.0/token"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return azcore.AccessToken{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.http.Do(request)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return azcore.AccessToken{}, fmt.Errorf("the front door responded with %s", response.Status)
	}
	var decoded struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}
	if err := json.NewDecoder(response.Body).Decode(&decoded); err != nil {
		return azcore.AccessToken{}, err
	}
	return azcore.AccessToken{Token: decoded.AccessToken, ExpiresOn: time.Now().Add(time.Duration(decoded.ExpiresIn) * time.Second)}, nil
}
