// Package token verifies bearer tokens: JWTs of one authority like Entra ID, for the audiences of the emulated services.
//
// It fetches the authority's keys when a token names an unknown key, with a minimum interval between fetches. No claim of
// a token is used before its signature is verified, except for the tenant, which is part of the URL of the keys.
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
	leeway           = time.Minute
	minFetchInterval = 2 * time.Second
	fetchTimeout     = 5 * time.Second
	maxDocument      = 1 << 20
)

// ErrUnavailable is returned if the authority's keys cannot be fetched.
var ErrUnavailable = errors.New("the keys of the token authority cannot be fetched")

// Verifier verifies the tokens of one authority. It is safe for concurrent use.
type Verifier struct {
	// Authority is the base URL of the tenants.
	Authority string
	// Client fetches the authority's documents.
	Client *http.Client

	mu        sync.Mutex
	keys      map[string]*rsa.PublicKey
	attempted time.Time
}

// Verify verifies the signature, validity period, issuer and audience of a token.
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
		return errors.New("the token has another issuer")
	}
	if !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(audiences, strings.TrimSuffix(a, "/")) }) {
		return errors.New("the token has another audience")
	}
	return nil
}

// key returns the key with an ID. The authority has the same keys in all tenants.
func (v *Verifier) key(ctx context.Context, id, tenant string) (*rsa.PublicKey, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if key := v.keys[id]; key != nil {
		return key, nil
	}
	if time.Since(v.attempted) < minFetchInterval && v.keys != nil {
		return nil, errors.New("the token is signed with an unknown key")
	}
	v.attempted = time.Now()
	keys, err := v.fetchKeys(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	v.keys = keys
	if key := v.keys[id]; key != nil {
		return key, nil
	}
	return nil, errors.New("the token is signed with an unknown key")
}

// fetchKeys fetches the authority's keys by ID.
func (v *Verifier) fetchKeys(ctx context.Context, tenant string) (map[string]*rsa.PublicKey, error) {
	if strings.ContainsAny(tenant, "/?#") {
		return nil, errors.New("the token's tenant is malformed")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	base := strings.TrimSuffix(v.Authority, "/") + "/"
	var configuration struct {
		Keys string `json:"jwks_uri"`
	}
	if err := v.get(ctx, base+tenant+"/v2.0/.well-known/openid-configuration", &configuration); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(configuration.Keys, base) {
		return nil, errors.New("the URL of the keys is not below the authority")
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

// get fetches a JSON document.
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
