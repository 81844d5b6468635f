// Package token verifies the bearer tokens that callers present: JWTs of one Entra-like authority, for one of the audiences
// that the emulated services have. The authority's keys are read from its OpenID documents when a token names one that is
// not known, and no more often than every few seconds. Nothing is taken on trust before the signature is checked.
package token

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The audiences of the emulated services.
var (
	ResourceManager = []string{"https://management.azure.com", "https://management.core.windows.net"}
	KeyVault        = []string{"https://vault.azure.net"}
	Storage         = []string{"https://storage.azure.com"}
)

const (
	leeway      = time.Minute
	readAtMost  = 2 * time.Second
	readTimeout = 5 * time.Second
	maxDocument = 1 << 20
)

// ErrUnavailable says that the authority's keys cannot be read.
var ErrUnavailable = errors.New("the keys of the tokens' authority cannot be read")

// Verifier checks tokens of one authority.
type Verifier struct {
	// Authority is the URL below which the tenants are.
	Authority string
	// Client reads the authority's documents.
	Client *http.Client

	mu    sync.Mutex
	keys  map[string]*rsa.PublicKey
	tried time.Time
}

// Verify checks a token's signature, life, issuer and audience.
func (v *Verifier) Verify(ctx context.Context, text string, audiences []string) error {
	var claims struct {
		jwt.RegisteredClaims
		TenantID string `json:"tid"`
	}
	_, err := jwt.ParseWithClaims(text, &claims, func(t *jwt.Token) (any, error) {
		id, _ := t.Header["kid"].(string)
		return v.key(ctx, id, claims.TenantID)
	}, jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway))
	if err != nil {
		return err
	}
	if claims.Issuer != strings.TrimSuffix(v.Authority, "/")+"/"+claims.TenantID+"/v2.0" {
		return errors.New("the token is another issuer's")
	}
	if !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(audiences, strings.TrimSuffix(a, "/")) }) {
		return errors.New("the token is for something else")
	}
	return nil
}

// key finds a key by its id; the authority has the same keys in all tenants.
func (v *Verifier) key(ctx context.Context, id, tenant string) (*rsa.PublicKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if key := v.keys[id]; key != nil {
		return key, nil
	}
	if time.Since(v.tried) < readAtMost && v.keys != nil {
		return nil, errors.New("the token is signed with an unknown key")
	}
	v.tried = time.Now()
	keys, err := v.read(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	v.keys = keys
	if key := v.keys[id]; key != nil {
		return key, nil
	}
	return nil, errors.New("the token is signed with an unknown key")
}

func (v *Verifier) read(ctx context.Context, tenant string) (map[string]*rsa.PublicKey, error) {
	if strings.ContainsAny(tenant, "/?#") {
		return nil, errors.New("the token's tenant is malformed")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	base := strings.TrimSuffix(v.Authority, "/") + "/"
	var configuration struct {
		Keys string `json:"jwks_uri"`
	}
	if err := v.get(ctx, base+tenant+"/v2.0/.well-known/openid-configuration", &configuration); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(configuration.Keys, base) {
		return nil, errors.New("the keys are said to be somewhere else")
	}
	var set struct {
		Keys []struct {
			Type     string `json:"kty"`
			ID       string `json:"kid"`
			Modulus  string `json:"n"`
			Exponent string `json:"e"`
		} `json:"keys"`
	}
	if err := v.get(ctx, configuration.Keys, &set); err != nil {
		return nil, err
	}
	keys := map[string]*rsa.PublicKey{}
	for _, k := range set.Keys {
		modulus, err := base64.RawURLEncoding.DecodeString(k.Modulus)
		exponent, err2 := base64.RawURLEncoding.DecodeString(k.Exponent)
		if k.Type != "RSA" || err != nil || err2 != nil || len(exponent) > 4 {
			continue
		}
		keys[k.ID] = &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(new(big.Int).SetBytes(exponent).Int64())}
	}
	return keys, nil
}

func (v *Verifier) get(ctx context.Context, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := v.Client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", address, response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, maxDocument)).Decode(into)
}
