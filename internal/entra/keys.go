package entra

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/keycache"
)

const (
	minFetchInterval = 2 * time.Second
	fetchTimeout     = 5 * time.Second
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

// has reports whether the key with an ID is still the given one.
func (k *keySet) has(id string, key *rsa.PublicKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byID[id] == key
}

// fetchKeys fetches the authority's keys by ID.
func (v *Verifier) fetchKeys(ctx context.Context, tenant string) (map[string]*rsa.PublicKey, error) {
	if strings.ContainsAny(tenant, "/?#") {
		return nil, errors.New("the token's tenant is malformed")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	content, err := keycache.Get(ctx, v.Client, v.base()+tenant+"/v2.0/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var configuration struct {
		Keys string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(content, &configuration); err != nil {
		return nil, errors.New("the OpenID configuration of the authority is not valid JSON")
	}
	if !strings.HasPrefix(configuration.Keys, v.base()) {
		return nil, errors.New("the URL of the keys is not below the authority")
	}
	if content, err = keycache.Get(ctx, v.Client, configuration.Keys); err != nil {
		return nil, err
	}
	keys, _, err := keycache.RSAKeys(content)
	return keys, err
}
