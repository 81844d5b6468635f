// Package entratest issues tokens in tests. Its Issuer serves the OpenID documents that an entra.Verifier fetches, and is
// a credential for the SDK's clients. It issues every requested token.
package entratest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/golang-jwt/jwt/v5"
)

const (
	// Tenant is the tenant of all tokens.
	Tenant = "0c5b6e2c-2f6a-4c57-9d21-7a6f3c1d8e40"
	// ObjectID is the principal of the tokens that Token returns.
	ObjectID = "4f2f6d57-7f0c-45b5-8a26-93c1a3f3a6d2"
)

const keyID = "test"

// signingKey is the key of all issuers of a process: generating a key and signing a token take most of the CPU time of a small test.
var signingKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// Issuer is an authority and a credential.
type Issuer struct {
	server *httptest.Server
	key    *rsa.PrivateKey

	mu     sync.Mutex
	tokens map[string]azcore.AccessToken // that GetToken returned, by scope
}

var _ azcore.TokenCredential = (*Issuer)(nil)

// Start starts an Issuer, which serves until Close.
func Start() (*Issuer, error) {
	key, err := signingKey()
	if err != nil {
		return nil, err
	}
	i := &Issuer{key: key, tokens: map[string]azcore.AccessToken{}}
	i.server = httptest.NewServer(http.HandlerFunc(i.serve))
	return i, nil
}

// Close stops the Issuer.
func (i *Issuer) Close() { i.server.Close() }

// Authority returns the base URL of the tenants.
func (i *Issuer) Authority() string { return i.server.URL }

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	var document any
	switch {
	case strings.HasSuffix(r.URL.Path, "/v2.0/.well-known/openid-configuration"):
		document = map[string]string{"jwks_uri": i.server.URL + "/keys"}
	case r.URL.Path == "/keys":
		document = map[string]any{"keys": []any{map[string]string{"kty": "RSA", "kid": keyID,
			"n": base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(i.key.E)).Bytes())}}}
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(document)
}

// Claims returns the claims of a valid token for an audience. Tests change them before they call Sign.
func (i *Issuer) Claims(audience, objectID string, expires time.Time) jwt.MapClaims {
	return jwt.MapClaims{"iss": i.server.URL + "/" + Tenant + "/v2.0", "aud": audience, "tid": Tenant, "oid": objectID, "exp": expires.Unix()}
}

// Sign returns a token with claims.
func (i *Issuer) Sign(claims jwt.MapClaims) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = keyID
	text, err := token.SignedString(i.key)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return text, nil
}

// Token returns a token of ObjectID for an audience.
func (i *Issuer) Token(audience string, expires time.Time) (string, error) {
	return i.Sign(i.Claims(audience, ObjectID, expires))
}

// GetToken implements azcore.TokenCredential for ObjectID. The audience is that of the first scope. It returns a token for half of its
// validity period, as the credentials of the SDK do.
func (i *Issuer) GetToken(ctx context.Context, options policy.TokenRequestOptions) (token azcore.AccessToken, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	principal := i.Principal(ObjectID)
	if token = i.tokens[options.Scopes[0]]; time.Until(token.ExpiresOn) < principal.Lifetime/2 {
		if token, err = principal.GetToken(ctx, options); err == nil {
			i.tokens[options.Scopes[0]] = token
		}
	}
	return token, err
}

// Principal returns a credential of a principal. Its tokens are valid for an hour.
func (i *Issuer) Principal(objectID string) *Principal {
	return &Principal{Lifetime: time.Hour, issuer: i, objectID: objectID}
}

// Principal is a credential of one principal.
type Principal struct {
	// Lifetime is the validity period of its tokens.
	Lifetime time.Duration

	issuer   *Issuer
	objectID string
	issued   atomic.Int64
}

// Issued returns the number of tokens that were issued.
func (p *Principal) Issued() int { return int(p.issued.Load()) }

// GetToken implements azcore.TokenCredential. The audience is that of the first scope.
func (p *Principal) GetToken(_ context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	p.issued.Add(1)
	expires := time.Now().Add(p.Lifetime)
	text, err := p.issuer.Sign(p.issuer.Claims(strings.TrimSuffix(options.Scopes[0], "/.default"), p.objectID, expires))
	return azcore.AccessToken{Token: text, ExpiresOn: expires}, err
}
