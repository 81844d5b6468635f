package token

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The limits of sign-ins.
const (
	// codeLifetime is how long an authorization code may be redeemed, and maxCodes bounds the number of codes.
	codeLifetime = 5 * time.Minute
	maxCodes     = 1000
	// refreshLifetime is the validity period of a refresh token, as in Entra for web applications with a session of one day.
	refreshLifetime = 24 * time.Hour
)

// ErrInvalidGrant is returned for an authorization code or a refresh token that is unknown, used, expired or of another client.
var ErrInvalidGrant = errors.New("the code or the refresh token is unknown, used, expired or of another client")

// SignInError is an error of an authorization request that its application may receive (RFC 6749, section 4.1.2.1).
type SignInError struct {
	Code        string
	Description string
}

// Error returns the description.
func (e *SignInError) Error() string { return e.Description }

// SignIn is a valid request of an application to sign a person in (OpenID Connect Core 1.0, section 3.1.2.1).
type SignIn struct {
	// Application is the name of the application.
	Application string
	RedirectURI string
	State       string
	// People may sign in to the application.
	People []Client
	// Contexts are the authentication contexts that the application requires (parameter claims). The person confirms the sign-in for them.
	Contexts []string

	tenant    string
	client    Client
	nonce     string
	challenge string
	audience  string
}

// code is an issued authorization code.
type code struct {
	signIn  SignIn
	person  Client
	expires time.Time
}

// SignIn returns the request that the parameters of an authorization request describe. The error is a *SignInError if the application may
// receive it: then the SignIn has RedirectURI and State. Every other error is shown to the person, because its redirect URI proves nothing.
func (i *Issuer) SignIn(tenant string, query url.Values) (SignIn, error) {
	s := SignIn{tenant: tenant, RedirectURI: query.Get("redirect_uri"), State: query.Get("state"), nonce: query.Get("nonce"), challenge: query.Get("code_challenge")}
	application := i.application(tenant, query.Get("client_id"))
	if application == nil {
		return SignIn{}, errors.New("client_id: no application of people in this tenant has this ID")
	}
	if !application.returnsTo(s.RedirectURI) {
		return SignIn{}, errors.New("redirect_uri: the application has not registered this URI")
	}
	s.client, s.Application = *application, application.Name
	s.audience = strings.TrimSuffix(resourceScope(query.Get("scope")), "/.default")
	challenge, err := base64.RawURLEncoding.DecodeString(s.challenge)
	switch {
	case query.Get("response_type") != "code":
		return s, &SignInError{"unsupported_response_type", "response_type: only code is supported"}
	case query.Get("code_challenge_method") != "S256" || err != nil || len(challenge) != sha256.Size:
		return s, &SignInError{"invalid_request", "code_challenge: a challenge with the method S256 is required"}
	case s.nonce == "":
		return s, &SignInError{"invalid_request", "nonce: required value"}
	case !slices.Contains(strings.Fields(query.Get("scope")), "openid"):
		return s, &SignInError{"invalid_scope", "scope: openid is required"}
	case !slices.Contains(application.Audiences, s.audience):
		return s, &SignInError{"invalid_scope", "scope: the application gets no tokens for this resource"}
	}
	if s.Contexts, err = requestedContexts(query.Get("claims")); err != nil {
		return s, &SignInError{"invalid_request", err.Error()}
	}
	s.People = i.people(tenant, s.audience)
	return s, nil
}

// returnsTo reports whether a person may return to a URI.
func (c *Client) returnsTo(uri string) bool {
	if slices.Contains(c.RedirectURIs, uri) {
		return true
	}
	u, err := url.Parse(uri)
	if !c.Public || err != nil || u.Scheme != "http" || u.Hostname() != "127.0.0.1" || u.Port() == "" || u.User != nil {
		return false
	}
	u.Host = u.Hostname()
	return slices.Contains(c.RedirectURIs, u.String())
}

// requestedContexts returns the authentication contexts in a claims request (OpenID Connect Core 1.0, section 5.5). As Entra does, the issuer
// ignores all other claims.
func requestedContexts(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	var asked struct {
		AccessToken struct {
			Contexts *struct {
				Value  string   `json:"value"`
				Values []string `json:"values"`
			} `json:"acrs"`
		} `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(text), &asked); err != nil {
		return nil, errors.New("claims: not a claims request in JSON")
	}
	wanted := asked.AccessToken.Contexts
	if wanted == nil {
		return nil, nil
	}
	contexts := wanted.Values
	if wanted.Value != "" {
		contexts = append(contexts, wanted.Value)
	}
	if slices.ContainsFunc(contexts, func(context string) bool { return !contextName.MatchString(context) }) {
		return nil, errors.New("claims: acrs: not the name of an authentication context, c1 to c99")
	}
	return contexts, nil
}

// contextName matches the names of authentication contexts.
var contextName = regexp.MustCompile(`^c[1-9][0-9]?$`)

// stepUp returns a person who has confirmed the sign-in for authentication contexts. The confirmation is a second factor.
func (c Client) stepUp(contexts []string) Client {
	if len(contexts) == 0 {
		return c
	}
	c.AuthenticationContexts = slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.AuthenticationContexts, contexts))))
	c.AuthenticationMethods = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(c.AuthenticationMethods), "mfa"))))
	return c
}

// application returns the application of people of a tenant, or nil.
func (i *Issuer) application(tenant, clientID string) *Client {
	clients := i.clients()
	for n := range clients {
		client := &clients[n]
		if len(client.RedirectURIs) > 0 && strings.EqualFold(client.TenantID, tenant) && strings.EqualFold(client.ClientID, clientID) {
			return client
		}
	}
	return nil
}

// people returns the clients of a tenant that are people with access to an audience. A person has a secret, with which command lines sign in.
func (i *Issuer) people(tenant, audience string) []Client {
	var people []Client
	for _, client := range i.clients() {
		if client.ClientSecret != "" && strings.EqualFold(client.TenantID, tenant) && slices.Contains(client.Audiences, audience) {
			people = append(people, client)
		}
	}
	return people
}

// ErrWrongPassword is the error for a password that is not that of the chosen person.
var ErrWrongPassword = errors.New("the password is not that of this person")

// person returns the person with an object ID who signs in with a password: the secret with which the person's command lines sign in. The error is
// a *SignInError, ErrWrongPassword or a *TooManyAttemptsError.
func (i *Issuer) person(s *SignIn, objectID, password string) (Client, error) {
	at := slices.IndexFunc(s.People, func(c Client) bool { return c.ObjectID == objectID })
	if at < 0 {
		return Client{}, &SignInError{"access_denied", "the person has no access to the application"}
	}
	person := s.People[at]
	matches, err := i.attempts.compare(person.attemptsKey("person", objectID), func() bool { return person.hasSecret(password) })
	switch {
	case err != nil:
		return Client{}, err
	case !matches:
		return Client{}, ErrWrongPassword
	}
	return person, nil
}

// Code returns an authorization code for the person with an object ID and a password. It may be redeemed once.
func (i *Issuer) Code(s SignIn, objectID, password string) (string, error) {
	person, err := i.person(&s, objectID, password)
	if err != nil {
		return "", err
	}
	now := i.now()
	i.mu.Lock()
	defer i.mu.Unlock()
	for known, c := range i.codes {
		if !now.Before(c.expires) {
			delete(i.codes, known)
		}
	}
	if len(i.codes) >= maxCodes {
		return "", &SignInError{"temporarily_unavailable", "too many sign-ins are in progress"}
	}
	text := rand.Text()
	i.codes[text] = code{signIn: s, person: person, expires: now.Add(codeLifetime)}
	return text, nil
}

// UserTokens are the tokens of a person who signed in to a web application.
type UserTokens struct {
	AccessToken, IDToken, RefreshToken string
}

// personal returns the application of people that requests tokens: a workload authenticates with its token, and a public application cannot. It
// returns nil if there is none.
func (i *Issuer) personal(tenant, clientID, assertion string) *Client {
	if assertion != "" {
		return i.workload(tenant, clientID, assertion)
	}
	if application := i.application(tenant, clientID); application != nil && application.Public {
		return application
	}
	return nil
}

// Redeem returns the tokens of an authorization code (RFC 6749, section 4.1.3; RFC 7636, section 4.5). The application authenticates with the
// token of its workload, unless it is public. The error is ErrInvalidClient or ErrInvalidGrant if the request is not permitted. A code is used up by the first
// attempt of its application.
func (i *Issuer) Redeem(tenant, clientID, assertion, text, redirectURI, verifier string) (UserTokens, error) {
	client := i.personal(tenant, clientID, assertion)
	if client == nil {
		return UserTokens{}, ErrInvalidClient
	}
	i.mu.Lock()
	c, found := i.codes[text]
	if found && c.signIn.client.ClientID == client.ClientID {
		delete(i.codes, text)
	}
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(verifier))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	if !found || c.signIn.client.ClientID != client.ClientID || !strings.EqualFold(c.signIn.tenant, tenant) || !i.now().Before(c.expires) || c.signIn.RedirectURI != redirectURI ||
		subtle.ConstantTimeCompare([]byte(challenge), []byte(c.signIn.challenge)) != 1 {
		return UserTokens{}, ErrInvalidGrant
	}
	return i.userTokens(client, c.person, c.signIn.audience, c.signIn.nonce, c.signIn.Contexts)
}

// refreshClaims are the claims of a refresh token.
type refreshClaims struct {
	jwt.RegisteredClaims
	AppID    string `json:"appid"`
	Resource string `json:"resource"`
	// Contexts are those for which the person has confirmed the sign-in.
	Contexts []string `json:"acrs,omitempty"`
}

// refreshAudience is the audience of a tenant's refresh tokens, which no service accepts as access tokens.
func (i *Issuer) refreshAudience(tenant string) string { return i.issuerName(tenant) + "/refresh" }

// Refresh returns new tokens for a refresh token of the application, while the person exists. The errors are those of Redeem.
func (i *Issuer) Refresh(tenant, clientID, assertion, text string) (UserTokens, error) {
	client := i.personal(tenant, clientID, assertion)
	if client == nil {
		return UserTokens{}, ErrInvalidClient
	}
	var claims refreshClaims
	_, err := jwt.ParseWithClaims(text, &claims, func(*jwt.Token) (any, error) { return &i.key.PublicKey, nil }, jwt.WithValidMethods([]string{"RS256"}),
		jwt.WithIssuer(i.issuerName(client.TenantID)), jwt.WithAudience(i.refreshAudience(client.TenantID)), jwt.WithExpirationRequired(), jwt.WithTimeFunc(i.now))
	if err != nil || claims.AppID != client.ClientID {
		return UserTokens{}, ErrInvalidGrant
	}
	for _, person := range i.people(client.TenantID, claims.Resource) {
		if person.ObjectID == claims.Subject {
			return i.userTokens(client, person, claims.Resource, "", claims.Contexts)
		}
	}
	return UserTokens{}, ErrInvalidGrant
}

// idClaims are the claims of an ID token (OpenID Connect Core 1.0, section 2).
type idClaims struct {
	jwt.RegisteredClaims
	TenantID      string `json:"tid"`
	ObjectID      string `json:"oid"`
	PreferredName string `json:"preferred_username"`
	Name          string `json:"name"`
	Nonce         string `json:"nonce,omitempty"`
	Version       string `json:"ver"`
}

// userTokens returns the tokens of a person for an application, who has confirmed the sign-in for authentication contexts. The ID token of a device and
// a refreshed one have no nonce.
func (i *Issuer) userTokens(application *Client, person Client, audience, nonce string, contexts []string) (UserTokens, error) {
	person = person.stepUp(contexts)
	person.ClientID = application.ClientID
	access, err := i.IssueWithoutSecret(&person, audience)
	if err != nil {
		return UserTokens{}, err
	}
	now := i.now()
	registered := func(audience string, lifetime time.Duration) jwt.RegisteredClaims {
		return jwt.RegisteredClaims{Issuer: i.issuerName(application.TenantID), Subject: person.ObjectID, Audience: jwt.ClaimStrings{audience}, IssuedAt: jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)), ID: rand.Text()}
	}
	id, err := i.sign(idClaims{RegisteredClaims: registered(application.ClientID, Lifetime), TenantID: person.TenantID, ObjectID: person.ObjectID,
		PreferredName: person.Name, Name: person.Name, Nonce: nonce, Version: "2.0"})
	if err != nil {
		return UserTokens{}, err
	}
	refresh, err := i.sign(refreshClaims{RegisteredClaims: registered(i.refreshAudience(application.TenantID), refreshLifetime), AppID: application.ClientID, Resource: audience,
		Contexts: contexts})
	if err != nil {
		return UserTokens{}, err
	}
	return UserTokens{AccessToken: access, IDToken: id, RefreshToken: refresh}, nil
}

// sign returns a token with claims.
func (i *Issuer) sign(content jwt.Claims) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, content)
	token.Header["kid"] = i.keyID
	signed, err := token.SignedString(i.key)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return signed, nil
}

// SignedOut returns the URI to which a person returns who signed out of an application, or "" if no application of the tenant registered it.
func (i *Issuer) SignedOut(tenant, uri string) string {
	for _, client := range i.clients() {
		if strings.EqualFold(client.TenantID, tenant) && slices.Contains(client.RedirectURIs, uri) {
			return uri
		}
	}
	return ""
}
