// Package token is the region's stand-in for Entra ID: it issues access tokens to the clients it knows, by OAuth 2.0's
// client credentials grant, and verifies the tokens that callers of ARM present. Tokens are real JWTs, signed with a key
// that is made once and kept; the OpenID documents let a client library find its way without being changed.
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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Lifetime of an access token, as Entra's is.
const Lifetime = time.Hour

// leeway is how far the clocks of issuer and verifier may differ.
const leeway = time.Minute

// forARM reports whether a token's audience is ARM, which has two names in use.
func forARM(audience string) bool {
	audience = strings.TrimSuffix(audience, "/")
	return audience == "https://management.azure.com" || audience == "https://management.core.windows.net"
}

// forServices reports whether a token's audience is one of Azure's own services that the region has beside ARM.
func forServices(audience string) bool {
	return audience == "https://vault.azure.net" || audience == "https://storage.azure.com"
}

// Client is who may have tokens.
type Client struct {
	TenantID     string `json:"tenantId"`
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
	// ObjectID and Name are what the resource provider sees of the caller.
	ObjectID string `json:"objectId"`
	Name     string `json:"name"`
	// Groups are the ids of the groups that its tokens say it is a member of.
	Groups []string `json:"groups,omitempty"`
	// Audiences are the only ones that it may have tokens for; empty means all that there are.
	Audiences []string `json:"audiences,omitempty"`
}

// ReadClients reads a JSON list of clients; an unknown field is refused.
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
		if client.TenantID == "" || client.ClientID == "" || client.ClientSecret == "" {
			return nil, fmt.Errorf("reading the clients in %s: client %d needs tenantId, clientId and clientSecret", path, i)
		}
	}
	return clients, nil
}

// Caller is who a verified token speaks for.
type Caller struct {
	TenantID string
	ClientID string
	ObjectID string
	Name     string
}

type claims struct {
	jwt.RegisteredClaims
	TenantID string   `json:"tid"`
	AppID    string   `json:"appid"`
	ObjectID string   `json:"oid"`
	Name     string   `json:"unique_name,omitempty"`
	Groups   []string `json:"groups,omitempty"`
	Version  string   `json:"ver"`
}

// Issuer issues and verifies tokens.
type Issuer struct {
	// authority is the URL that tenants are below, as in https://127.0.0.1:18400.
	authority string
	clients   []Client
	// audiences are those besides ARM that tokens are issued for.
	audiences []string
	key       *rsa.PrivateKey
	keyID     string
	now       func() time.Time
}

// NewIssuer reads the signing key in keyDir, or makes it there. Tokens are issued for ARM and for the further audiences; who
// may use one that it has is the audience's to decide.
func NewIssuer(authority, keyDir string, clients []Client, audiences ...string) (*Issuer, error) {
	key, err := signingKey(filepath.Join(keyDir, "token-signing.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the key that signs tokens: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return &Issuer{
		authority: strings.TrimSuffix(authority, "/"), clients: clients, audiences: audiences, key: key, keyID: hex.EncodeToString(sum[:8]), now: time.Now,
	}, nil
}

func signingKey(path string) (*rsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return makeSigningKey(path)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is not PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, not an RSA key", path, parsed)
	}
	return key, nil
}

func makeSigningKey(path string) (*rsa.PrivateKey, error) {
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
	part := path + ".part"
	if err := os.WriteFile(part, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return nil, err
	}
	return key, os.Rename(part, path)
}

// ErrClient is the answer to credentials that are not a known client's.
var ErrClient = errors.New("the client is not known in this tenant, or its secret is wrong")

// ErrAudience is the answer to a request for a token for something that is not known here.
var ErrAudience = errors.New("tokens are not issued for this audience, or not to this client")

// Issue gives a client a token for a scope such as https://management.azure.com/.default.
func (i *Issuer) Issue(tenant, clientID, secret, scope string) (string, error) {
	audience := strings.TrimSuffix(resourceScope(scope), "/.default")
	if !forARM(audience) && !forServices(audience) && !slices.Contains(i.audiences, audience) {
		return "", ErrAudience
	}
	client := i.client(tenant, clientID, secret)
	if client == nil {
		return "", ErrClient
	}
	if len(client.Audiences) > 0 && !slices.Contains(client.Audiences, audience) {
		return "", ErrAudience
	}
	return i.IssueTo(client, audience)
}

// resourceScope is the scope that names a resource, of those that a client asks for: Microsoft's client libraries add OpenID
// Connect's own to every request, which mean nothing without a user.
func resourceScope(scopes string) string {
	for scope := range strings.FieldsSeq(scopes) {
		if !slices.Contains([]string{"openid", "profile", "offline_access"}, scope) {
			return scope
		}
	}
	return ""
}

// IssueTo gives a client a token without asking for its secret: for a client that is this process itself.
func (i *Issuer) IssueTo(client *Client, audience string) (string, error) {
	now := i.now()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    i.issuerOf(client.TenantID),
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
		Version:  "2.0",
	})
	token.Header["kid"] = i.keyID
	signed, err := token.SignedString(i.key)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return signed, nil
}

func (i *Issuer) client(tenant, clientID, secret string) *Client {
	for n := range i.clients {
		client := &i.clients[n]
		if strings.EqualFold(client.TenantID, tenant) && strings.EqualFold(client.ClientID, clientID) &&
			subtle.ConstantTimeCompare([]byte(client.ClientSecret), []byte(secret)) == 1 {
			return client
		}
	}
	return nil
}

// Verify checks a token's signature, life and audience, and that it comes from here.
func (i *Issuer) Verify(text string) (Caller, error) {
	var found claims
	_, err := jwt.ParseWithClaims(text, &found, func(*jwt.Token) (any, error) { return &i.key.PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(i.now))
	if err != nil {
		return Caller{}, err
	}
	if found.Issuer != i.issuerOf(found.TenantID) {
		return Caller{}, errors.New("the token is another issuer's")
	}
	if !slices.ContainsFunc(found.Audience, forARM) {
		return Caller{}, errors.New("the token is for something else")
	}
	return Caller{TenantID: found.TenantID, ClientID: found.AppID, ObjectID: found.ObjectID, Name: found.Name}, nil
}

func (i *Issuer) issuerOf(tenant string) string { return i.authority + "/" + tenant + "/v2.0" }

// Home is the tenant of the first client, which callers without a token are sent to; empty when there are no clients.
func (i *Issuer) Home() string {
	if len(i.clients) == 0 {
		return ""
	}
	return i.clients[0].TenantID
}

// Configuration is a tenant's OpenID Connect discovery document.
func (i *Issuer) Configuration(tenant string) any {
	base := i.authority + "/" + tenant
	return map[string]any{
		"issuer":                                i.issuerOf(tenant),
		"authorization_endpoint":                base + "/oauth2/v2.0/authorize",
		"token_endpoint":                        base + "/oauth2/v2.0/token",
		"jwks_uri":                              base + "/discovery/v2.0/keys",
		"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"},
		"grant_types_supported":                 []string{"client_credentials"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"response_types_supported":              []string{"token"},
		"subject_types_supported":               []string{"pairwise"},
	}
}

// Keys is the document that the keys are published in (RFC 7517).
func (i *Issuer) Keys() any {
	exponent := big.NewInt(int64(i.key.E)).Bytes()
	return map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": i.keyID,
		"n": base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()),
		"e": base64.RawURLEncoding.EncodeToString(exponent),
	}}}
}
