// Package login signs engineers in to an OpenID Connect issuer, such as Microsoft Entra, and keeps their tokens in files.
//
// A sign-in uses a browser on this machine (authorization code with PKCE, RFC 8252) or on another one (device authorization, RFC 8628). hcpctl is a
// public client: it has no secret. The tokens of a login are in one file that only its owner can read. A Credential reads the file for each token and
// refreshes it under a lock, so that processes share a login. Tokens are never in errors, logs or arguments.
package login

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/keycache"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

const (
	// patience is how long a sign-in with a browser waits for the person.
	patience = 5 * time.Minute
	// requestTimeout limits one request to the issuer.
	requestTimeout = 30 * time.Second
)

// Application is hcpctl as an application of an issuer, and the service for which it gets tokens.
type Application struct {
	// Issuer is the URL of the issuer, with the ID of the tenant. ClientID is the application of hcpctl.
	Issuer   string `json:"issuer"`
	ClientID string `json:"clientId"`
	// Audience is that of the tokens. Scope is requested for it; empty means the audience followed by /.default.
	Audience string `json:"audience"`
	Scope    string `json:"scope,omitempty"`
	// CAFile has the authorities that verify the issuer's certificate; empty means those of the system.
	CAFile string `json:"caFile,omitempty"`
}

// Login is a person who signed in, with the current tokens. It is a secret.
type Login struct {
	Application
	Name       string    `json:"name"`
	ObjectID   string    `json:"objectId"`
	TenantID   string    `json:"tenantId"`
	SignInTime time.Time `json:"signInTime"`

	AccessToken  string    `json:"accessToken"`
	Expires      time.Time `json:"expires"`
	RefreshToken string    `json:"refreshToken"`
}

// Is reports whether a login is that of an engineer: a name, or the part of it before the @. An empty name is everyone's.
func (l *Login) Is(name string) bool {
	short, _, _ := strings.Cut(l.Name, "@")
	return name == "" || strings.EqualFold(name, l.Name) || strings.EqualFold(name, short)
}

// Client signs people in to one application. It is safe for concurrent use.
type Client struct {
	application Application
	http        *http.Client
	verifier    *authn.IDTokenVerifier
}

// NewClient returns a Client. It does not connect.
func NewClient(application Application) (*Client, error) {
	for _, required := range []struct{ flag, value string }{{"issuer", application.Issuer}, {"client-id", application.ClientID}, {"admin-audience", application.Audience}} {
		if required.value == "" {
			return nil, fmt.Errorf("--%s is required to sign in", required.flag)
		}
	}
	connections, err := transport.New(application.CAFile)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: requestTimeout, Transport: connections}
	verifier, err := authn.NewIDTokenVerifier(authn.IDTokenOptions{Issuer: application.Issuer, ClientID: application.ClientID, Client: client})
	if err != nil {
		return nil, fmt.Errorf("--issuer: %w", err)
	}
	return &Client{application: application, http: client, verifier: verifier}, nil
}

// Request describes a sign-in.
type Request struct {
	// Claims is the claims request of a claims challenge: the person must sign in again. Empty requests none.
	Claims string
	// Name is the person who is expected to sign in; empty lets the person choose.
	Name string
}

// SignOutURL returns the URL at which a person ends the session with the issuer; empty if the issuer has none or cannot be reached.
func (c *Client) SignOutURL(ctx context.Context) string {
	endpoints, err := c.verifier.Endpoints(ctx)
	if err != nil {
		return ""
	}
	return endpoints.EndSession
}

// config returns the configuration of the OAuth 2.0 client, and the context of its requests.
func (c *Client) config(ctx context.Context, redirectURI string) (*oauth2.Config, context.Context, error) {
	endpoints, err := c.verifier.Endpoints(ctx)
	if err != nil {
		return nil, nil, c.failure(err)
	}
	config := &oauth2.Config{
		ClientID: c.application.ClientID, RedirectURL: redirectURI,
		Scopes:   []string{"openid", "profile", "offline_access", cmp.Or(c.application.Scope, c.application.Audience+"/.default")},
		Endpoint: oauth2.Endpoint{AuthURL: endpoints.Authorization, TokenURL: endpoints.Token, DeviceAuthURL: endpoints.Device, AuthStyle: oauth2.AuthStyleInParams},
	}
	return config, context.WithValue(ctx, oauth2.HTTPClient, c.http), nil
}

// login returns the login of a person with the tokens of the token endpoint.
func (c *Client) login(token *oauth2.Token, verify func(idToken string) (authn.Person, error)) (*Login, error) {
	text, _ := token.Extra("id_token").(string)
	person, err := verify(text)
	if err != nil {
		return nil, c.failure(err)
	}
	if token.RefreshToken == "" {
		return nil, errors.New("the issuer returned no refresh token: permit the scope offline_access to the application of hcpctl")
	}
	return &Login{Application: c.application, Name: person.Name, ObjectID: person.ObjectID, TenantID: person.TenantID, SignInTime: time.Now().UTC(),
		AccessToken: token.AccessToken, Expires: token.Expiry.UTC(), RefreshToken: token.RefreshToken}, nil
}

// UnreachableError reports that the issuer did not respond. A retry may succeed.
type UnreachableError struct {
	issuer string
	err    error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the issuer %s does not respond (%v); repeat the command when it does", e.issuer, e.err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.err }

// RefusedError is an error response of the issuer.
type RefusedError struct{ Code, Description string }

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Description == "" {
		return "the issuer refused the sign-in: " + e.Code
	}
	return fmt.Sprintf("the issuer refused the sign-in: %s: %s", e.Code, e.Description)
}

// RequiredError reports that a person must sign in.
type RequiredError struct{ text string }

// Error implements error.
func (e *RequiredError) Error() string { return e.text }

// failure converts an error of a request to the issuer. The result contains no response body, which may contain tokens.
func (c *Client) failure(err error) error {
	var unavailable *keycache.UnavailableError
	var response *oauth2.RetrieveError
	var unsent *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &response) && response.ErrorCode != "":
		return &RefusedError{Code: response.ErrorCode, Description: response.ErrorDescription}
	case errors.As(err, &response):
		return &UnreachableError{c.application.Issuer, fmt.Errorf("status %d", response.Response.StatusCode)}
	case errors.As(err, &unavailable):
		return &UnreachableError{c.application.Issuer, err}
	case errors.As(err, &unsent):
		return &UnreachableError{c.application.Issuer, unsent.Err}
	case errors.Is(err, authn.ErrInvalidIDToken):
		return fmt.Errorf("the issuer did not confirm who signed in: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return &RequiredError{fmt.Sprintf("nobody signed in within %v; run `hcpctl login` again", patience)}
	}
	return errors.New("the issuer sent a response that is not one of OAuth 2.0")
}

// refresh replaces the tokens of a login. The error is a *RequiredError if the person must sign in again.
func (c *Client) refresh(ctx context.Context, l *Login) error {
	config, ctx, err := c.config(ctx, "")
	if err != nil {
		return err
	}
	token, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: l.RefreshToken}).Token()
	if err == nil {
		l.AccessToken, l.Expires, l.RefreshToken = token.AccessToken, token.Expiry.UTC(), token.RefreshToken
		return nil
	}
	var refused *RefusedError
	err = c.failure(err)
	if errors.As(err, &refused) {
		return &RequiredError{fmt.Sprintf("the login of %s at %s has ended (%s); run `hcpctl login` to sign in again, or `hcpctl logout` to remove it", l.Name, l.Issuer, refused.Code)}
	}
	return err
}
