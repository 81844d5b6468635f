// Package token emulates Entra ID. It issues access tokens to configured clients with the client credentials grant of OAuth
// 2.0, and verifies the tokens of ARM's callers. Tokens are JWTs, signed with a key that is created once and stored. The
// OpenID documents let unmodified client libraries use the issuer.
package token

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Lifetime is the validity period of an access token, as in Entra.
const Lifetime = time.Hour

// leeway is the permitted difference between the clocks of issuer and verifier.
const leeway = time.Minute

// isARMAudience reports whether an audience is one of ARM's two.
func isARMAudience(audience string) bool {
	audience = strings.TrimSuffix(audience, "/")
	return audience == "https://management.azure.com" || audience == "https://management.core.windows.net"
}

// isServiceAudience reports whether an audience is that of another emulated Azure service.
func isServiceAudience(audience string) bool {
	return slices.Contains([]string{"https://vault.azure.net", "https://storage.azure.com", "https://cosmos.azure.com", "https://ossrdbms-aad.database.windows.net", "https://identity.azure.net"}, audience)
}

// Client is an application that may request tokens.
type Client struct {
	TenantID string `json:"tenantId"`
	ClientID string `json:"clientId"`
	// ClientSecret authenticates the client. A client without a secret has a Workload, or is Public.
	ClientSecret string `json:"clientSecret,omitempty"`
	// Workload is the subject of the tokens with which a workload authenticates as the client (a federated identity credential).
	Workload string `json:"workload,omitempty"`
	// Federation verifies these tokens; nil means Issuer.Workloads.
	Federation *Federation `json:"-"`
	// Public is true for an application on people's computers, which cannot keep a secret (RFC 6749, section 2.1). It gets only tokens of people
	// who signed in to it.
	Public bool `json:"public,omitempty"`
	// ObjectID and Name identify the caller to the resource provider.
	ObjectID string `json:"objectId"`
	Name     string `json:"name"`
	// Groups lists the IDs of the groups in the client's tokens.
	Groups []string `json:"groups,omitempty"`
	// GroupsOverage leaves the groups out of the tokens and names them in _claim_names, as Entra does for callers in too many groups.
	GroupsOverage bool `json:"groupsOverage,omitempty"`
	// Roles, AuthenticationMethods, AuthenticationContexts and DeviceID are the claims roles, amr, acrs and deviceid of the tokens.
	Roles                  []string `json:"roles,omitempty"`
	AuthenticationMethods  []string `json:"authenticationMethods,omitempty"`
	AuthenticationContexts []string `json:"authenticationContexts,omitempty"`
	DeviceID               string   `json:"deviceId,omitempty"`
	// Audiences restricts the audiences of the client's tokens; empty means no restriction.
	Audiences []string `json:"audiences,omitempty"`
	// RedirectURIs lists the URIs to which people return who signed in to an application or out of it; only applications of people have some. Those
	// of a public application are loopback URIs without a port, which match all ports (RFC 8252, section 7.3).
	RedirectURIs []string `json:"redirectUris,omitempty"`
}

// ReadClients reads a JSON list of clients. It rejects unknown fields.
func ReadClients(path string) ([]Client, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the clients: %w", err)
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	var clients []Client
	if err := decoder.Decode(&clients); err != nil {
		return nil, fmt.Errorf("reading the clients in %s: %w", path, err)
	}
	for i, client := range clients {
		credentials := 0
		for _, has := range []bool{client.ClientSecret != "", client.Workload != "", client.Public} {
			if has {
				credentials++
			}
		}
		if client.TenantID == "" || client.ClientID == "" || credentials != 1 {
			return nil, fmt.Errorf("reading the clients in %s: client %d needs tenantId, clientId, and one of clientSecret, workload and public", path, i)
		}
	}
	return clients, nil
}

// Caller is the principal of a verified token.
type Caller struct {
	TenantID string
	ClientID string
	ObjectID string
	Name     string
}

// claims are the claims of the issuer's tokens.
type claims struct {
	jwt.RegisteredClaims
	TenantID string   `json:"tid"`
	AppID    string   `json:"appid"`
	ObjectID string   `json:"oid"`
	Name     string   `json:"unique_name,omitempty"`
	Groups   []string `json:"groups,omitempty"`
	// ClaimNames and ClaimSources replace Groups of a caller in too many groups.
	ClaimNames   map[string]string            `json:"_claim_names,omitempty"`
	ClaimSources map[string]map[string]string `json:"_claim_sources,omitempty"`
	Roles        []string                     `json:"roles,omitempty"`
	Methods      []string                     `json:"amr,omitempty"`
	Contexts     []string                     `json:"acrs,omitempty"`
	DeviceID     string                       `json:"deviceid,omitempty"`
	Version      string                       `json:"ver"`
}

// Issuer issues and verifies tokens. It is safe for concurrent use.
type Issuer struct {
	// authority is the base URL of the tenants, for example https://127.0.0.1:18400.
	authority string

	mu sync.RWMutex
	// known are the clients. A slice that was returned is not changed.
	known []Client
	// codes are the authorization codes that were not redeemed, at most maxCodes.
	codes map[string]code
	// devices are the device authorizations that were not redeemed, by device code, at most maxDevices.
	devices map[string]*device

	attempts *attempts

	// audiences lists further audiences of tokens, besides ARM and the emulated services.
	audiences []string
	// Workloads verifies the tokens of workloads; nil accepts none.
	Workloads *Federation
	key       *rsa.PrivateKey
	keyID     string
	now       func() time.Time
}

// NewIssuer returns an Issuer with the signing key in keyDir, which it creates if it does not exist. The Issuer issues
// tokens for ARM, for the other emulated services and for audiences. Each audience decides which tokens authorize their
// caller.
func NewIssuer(authority, keyDir string, clients []Client, audiences ...string) (*Issuer, error) {
	key, err := openSigningKey(filepath.Join(keyDir, "token-signing.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the signing key of tokens: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return &Issuer{
		authority: strings.TrimSuffix(authority, "/"), known: slices.Clone(clients), codes: map[string]code{}, devices: map[string]*device{}, attempts: newAttempts(time.Now),
		audiences: audiences, key: key, keyID: hex.EncodeToString(sum[:8]), now: time.Now,
	}, nil
}

// AddClients adds clients, for example identities that infrastructure as code has created.
func (i *Issuer) AddClients(clients ...Client) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.known = slices.Concat(i.known, clients)
}

// clients returns the clients.
func (i *Issuer) clients() []Client {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.known
}

// openSigningKey reads the key at path or creates it.
func openSigningKey(path string) (*rsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return createSigningKey(path)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s contains a %T, want an RSA key", path, parsed)
	}
	return key, nil
}

// createSigningKey creates a key and stores it at path.
func createSigningKey(path string) (*rsa.PrivateKey, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return key, disk.Replace(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// ErrInvalidClient is returned for credentials that match no client.
var ErrInvalidClient = errors.New("the client does not exist in this tenant or its secret is wrong")

// ErrInvalidAudience is returned if the client may not request tokens for an audience.
var ErrInvalidAudience = errors.New("no tokens are issued to this client for this audience")

// Issue returns a token for a client and a scope, for example https://management.azure.com/.default. The error is
// ErrInvalidClient, ErrInvalidAudience or a *TooManyAttemptsError if the request is not permitted.
func (i *Issuer) Issue(tenant, clientID, secret, scope string) (string, error) {
	return i.issue(scope, func() (*Client, error) { return i.findClient(tenant, clientID, secret) })
}

// issue is Issue for the client that find returns.
func (i *Issuer) issue(scope string, find func() (*Client, error)) (string, error) {
	audience := strings.TrimSuffix(resourceScope(scope), "/.default")
	if !isARMAudience(audience) && !isServiceAudience(audience) && !slices.Contains(i.audiences, audience) {
		return "", ErrInvalidAudience
	}
	client, err := find()
	if err != nil {
		return "", err
	}
	if len(client.Audiences) > 0 && !slices.Contains(client.Audiences, audience) {
		return "", ErrInvalidAudience
	}
	return i.IssueWithoutSecret(client, audience)
}

// resourceScope returns the scope of a list that names a resource. Microsoft's client libraries add the scopes of OpenID
// Connect to every request, which have no meaning without a user.
func resourceScope(scopes string) string {
	for scope := range strings.FieldsSeq(scopes) {
		if !slices.Contains([]string{"openid", "profile", "offline_access"}, scope) {
			return scope
		}
	}
	return ""
}

// IssueWithoutSecret returns a token for a client that this process represents.
func (i *Issuer) IssueWithoutSecret(client *Client, audience string) (string, error) {
	now := i.now()
	content := claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    i.issuerName(client.TenantID),
			Subject:   client.ObjectID,
			Audience:  jwt.ClaimStrings{audience},
			IssuedAt:  jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(Lifetime)),
			ID:        rand.Text(),
		},
		TenantID: client.TenantID,
		AppID:    client.ClientID,
		ObjectID: client.ObjectID,
		Name:     client.Name,
		Groups:   client.Groups,
		Roles:    client.Roles,
		Methods:  client.AuthenticationMethods,
		Contexts: client.AuthenticationContexts,
		DeviceID: client.DeviceID,
		Version:  "2.0",
	}
	if client.GroupsOverage {
		content.Groups, content.ClaimNames = nil, map[string]string{"groups": "src1"}
		content.ClaimSources = map[string]map[string]string{"src1": {"endpoint": i.authority + "/" + client.TenantID + "/users/" + client.ObjectID + "/getMemberObjects"}}
	}
	return i.sign(content)
}

// findClient returns the client with the credentials, ErrInvalidClient or a *TooManyAttemptsError. Several clients with the same ID differ by their secrets.
func (i *Issuer) findClient(tenant, clientID, secret string) (*Client, error) {
	var named []*Client
	clients := i.clients()
	for n := range clients {
		if client := &clients[n]; client.ClientSecret != "" && strings.EqualFold(client.TenantID, tenant) && strings.EqualFold(client.ClientID, clientID) {
			named = append(named, client)
		}
	}
	if len(named) == 0 {
		return nil, ErrInvalidClient
	}
	var found *Client
	matched, err := i.attempts.compare(named[0].attemptsKey("client", named[0].ClientID), func() bool {
		at := slices.IndexFunc(named, func(c *Client) bool { return c.hasSecret(secret) })
		if at >= 0 {
			found = named[at]
		}
		return at >= 0
	})
	if err == nil && !matched {
		err = ErrInvalidClient
	}
	return found, err
}

// hasSecret reports whether a secret is that of the client.
func (c *Client) hasSecret(secret string) bool {
	return subtle.ConstantTimeCompare([]byte(c.ClientSecret), []byte(secret)) == 1
}

// Verify verifies the signature, validity period, issuer and audience of a token for ARM and returns its caller.
func (i *Issuer) Verify(text string) (Caller, error) {
	var parsed claims
	_, err := jwt.ParseWithClaims(text, &parsed, func(*jwt.Token) (any, error) { return &i.key.PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(i.now))
	if err != nil {
		return Caller{}, err
	}
	if parsed.Issuer != i.issuerName(parsed.TenantID) {
		return Caller{}, errors.New("the token has another issuer")
	}
	if !slices.ContainsFunc(parsed.Audience, isARMAudience) {
		return Caller{}, errors.New("the token has another audience")
	}
	return Caller{TenantID: parsed.TenantID, ClientID: parsed.AppID, ObjectID: parsed.ObjectID, Name: parsed.Name}, nil
}

// issuerName returns the issuer of a tenant's tokens.
func (i *Issuer) issuerName(tenant string) string { return i.authority + "/" + tenant + "/v2.0" }

// HomeTenant returns the tenant in challenges to callers without a token: that of the first client, or "" without clients.
func (i *Issuer) HomeTenant() string {
	clients := i.clients()
	if len(clients) == 0 {
		return ""
	}
	return clients[0].TenantID
}

// Configuration returns the OpenID Connect discovery document of a tenant. host is that of the request: a client that reads the document at a loopback
// address gets endpoints there, because the name of the issuer may resolve only inside of clusters. The issuer is the same for all clients.
func (i *Issuer) Configuration(tenant, host string) any {
	base := i.authority + "/" + tenant
	if address, err := netip.ParseAddrPort(host); err == nil && address.Addr().IsLoopback() {
		scheme, _, _ := strings.Cut(i.authority, "://")
		base = scheme + "://" + host + "/" + tenant
	}
	return map[string]any{
		"issuer":                                i.issuerName(tenant),
		"authorization_endpoint":                base + "/oauth2/v2.0/authorize",
		"token_endpoint":                        base + "/oauth2/v2.0/token",
		"device_authorization_endpoint":         base + "/oauth2/v2.0/devicecode",
		"end_session_endpoint":                  base + "/oauth2/v2.0/logout",
		"jwks_uri":                              base + "/discovery/v2.0/keys",
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic", "private_key_jwt", "none"},
		"grant_types_supported":                 []string{"client_credentials", "authorization_code", "refresh_token", DeviceGrant},
		"code_challenge_methods_supported":      []string{"S256"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"response_types_supported":              []string{"code"},
		"subject_types_supported":               []string{"pairwise"},
	}
}

// Keys returns the JSON Web Key Set with the issuer's keys (RFC 7517).
func (i *Issuer) Keys() any {
	exponent := big.NewInt(int64(i.key.E)).Bytes()
	return map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": i.keyID,
		"n": base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(exponent),
	}}}
}
