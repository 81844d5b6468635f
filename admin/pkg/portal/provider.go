package portal

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/authn"
)

// maxTokenResponse bounds a response of the token endpoint, in bytes.
const maxTokenResponse = 256 << 10

// Provider signs people in with an identity provider: OpenID Connect with the authorization code flow and PKCE (RFC 7636). The portal
// authenticates to it with the token of its workload identity (RFC 7523, section 2.2), so that it has no secret of its own.
type Provider struct {
	// Verifier verifies ID tokens and has the endpoints of the provider.
	Verifier *authn.IDTokenVerifier
	// Client sends the requests to the token endpoint.
	Client *http.Client
	// ClientID is the application of the portal, and Scope that of the access tokens: admin's audience followed by /.default.
	ClientID, Scope string
	// AssertionFile holds the token of the workload identity. It may be replaced at any time.
	AssertionFile string
	// RedirectURL is the URL of the portal to which people return.
	RedirectURL string
	// Now is the clock.
	Now func() time.Time
}

// errSignInRefused is the error for a code or a refresh token that the provider does not accept.
var errSignInRefused = errors.New("the identity provider does not accept the sign-in")

// challenge returns the challenge of a verifier with the method S256 (RFC 7636, section 4.2).
func challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// stepUp is what an authorization request demands of a person who has a session.
type stepUp struct {
	// claims is the claims request of a claims challenge, and name the person who must sign in again.
	claims, name string
}

// authorizationURL returns the URL at which a person signs in. With claims, the person must sign in again, and the tokens get the claims if the
// policies of the provider permit it: for Entra, the authentication contexts of Conditional Access.
func (p *Provider) authorizationURL(ctx context.Context, state, nonce, verifier string, again stepUp) (string, error) {
	endpoints, err := p.Verifier.Endpoints(ctx)
	if err != nil {
		return "", err
	}
	query := url.Values{
		"client_id": {p.ClientID}, "response_type": {"code"}, "response_mode": {"query"}, "redirect_uri": {p.RedirectURL},
		"scope": {"openid profile offline_access " + p.Scope}, "state": {state}, "nonce": {nonce},
		"code_challenge": {challenge(verifier)}, "code_challenge_method": {"S256"},
	}
	if again.claims != "" {
		query.Set("claims", again.claims)
		query.Set("prompt", "login")
		query.Set("login_hint", again.name)
	}
	return endpoints.Authorization + "?" + query.Encode(), nil
}

// signOutURL returns the URL at which a person signs out of the provider, or "" if it has none or cannot be reached.
func (p *Provider) signOutURL(ctx context.Context) string {
	endpoints, err := p.Verifier.Endpoints(ctx)
	if err != nil {
		return ""
	}
	return endpoints.EndSession
}

// redeem returns the person and the tokens of an authorization code.
func (p *Provider) redeem(ctx context.Context, code, nonce, verifier string) (authn.Person, Tokens, error) {
	tokens, idToken, err := p.request(ctx, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.RedirectURL}, "code_verifier": {verifier}})
	if err != nil {
		return authn.Person{}, Tokens{}, err
	}
	person, err := p.Verifier.Verify(ctx, idToken, nonce)
	return person, tokens, err
}

// refresh returns new tokens of a person.
func (p *Provider) refresh(ctx context.Context, refreshToken string) (Tokens, error) {
	if refreshToken == "" {
		return Tokens{}, errSignInRefused
	}
	tokens, _, err := p.request(ctx, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refreshToken}, "scope": {"openid profile offline_access " + p.Scope}})
	if err == nil && tokens.Refresh == "" {
		tokens.Refresh = refreshToken // RFC 6749, section 6: the provider need not issue another one
	}
	return tokens, err
}

// request sends a request to the token endpoint. The error is errSignInRefused if the provider refuses the grant. Errors contain no token.
func (p *Provider) request(ctx context.Context, form url.Values) (tokens Tokens, idToken string, err error) {
	endpoints, err := p.Verifier.Endpoints(ctx)
	if err != nil {
		return Tokens{}, "", err
	}
	assertion, err := os.ReadFile(p.AssertionFile)
	if err != nil {
		return Tokens{}, "", fmt.Errorf("reading the token of the workload identity: %w", err)
	}
	form.Set("client_id", p.ClientID)
	form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
	form.Set("client_assertion", strings.TrimSpace(string(assertion)))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoints.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return Tokens{}, "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := p.Client.Do(request)
	if err != nil {
		return Tokens{}, "", fmt.Errorf("requesting tokens: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxTokenResponse))
	if err != nil {
		return Tokens{}, "", fmt.Errorf("requesting tokens: %w", err)
	}
	var answer struct {
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		IDToken      string `json:"id_token"`
		ExpiresIn    int    `json:"expires_in"`
		Error        string `json:"error"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return Tokens{}, "", fmt.Errorf("requesting tokens: the token endpoint responded with status %d and no JSON", response.StatusCode)
	}
	switch {
	case answer.Error == "invalid_grant" || answer.Error == "interaction_required":
		return Tokens{}, "", errSignInRefused
	case response.StatusCode != http.StatusOK || answer.AccessToken == "" || answer.ExpiresIn <= 0:
		return Tokens{}, "", fmt.Errorf("requesting tokens: the token endpoint responded with status %d and the error %q", response.StatusCode, answer.Error)
	}
	return Tokens{Access: answer.AccessToken, Refresh: answer.RefreshToken, Expires: p.Now().Add(time.Duration(answer.ExpiresIn) * time.Second).UTC()}, answer.IDToken, nil
}
