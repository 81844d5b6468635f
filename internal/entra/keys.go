package entra

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
	"strings"
	"sync"
	"time"
)

const (
	minFetchInterval = 2 * time.Second
	fetchTimeout     = 5 * time.Second
	maxDocument      = 1 << 20
)

// keySet caches the keys of an authority. The authority has the same keys in all tenants.
type keySet struct {
	mu        sync.Mutex
	byID      map[string]*rsa.PublicKey
	attempted time.Time
}

// find returns the key with an ID. If the key is unknown, it fetches the keys unless the last fetch was too recent.
func (k *keySet) find(ctx context.Context, v *Verifier, id, tenant string) (*rsa.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := k.byID[id]; key != nil {
		return key, nil
	}
	if time.Since(k.attempted) < minFetchInterval && k.byID != nil {
		return nil, ErrUnknownKey
	}
	k.attempted = time.Now()
	keys, err := v.fetchKeys(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	k.byID = keys
	if key := k.byID[id]; key != nil {
		return key, nil
	}
	return nil, ErrUnknownKey
}

// fetchKeys fetches the authority's keys by ID.
func (v *Verifier) fetchKeys(ctx context.Context, tenant string) (map[string]*rsa.PublicKey, error) {
	if strings.ContainsAny(tenant, "/?#") {
		return nil, errors.New("the token's tenant is malformed")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	var configuration struct {
		Keys string `json:"jwks_uri"`
	}
	if err := v.get(ctx, v.base()+tenant+"/v2.0/.well-known/openid-configuration", &configuration); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(configuration.Keys, v.base()) {
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
