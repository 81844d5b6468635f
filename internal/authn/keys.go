package authn

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

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// The intervals at which keys are fetched.
const (
	minKeysRetry        = 500 * time.Millisecond
	maxKeysRetry        = 30 * time.Second
	keysRefreshInterval = time.Hour
	maxKeysAge          = 24 * time.Hour
	minFetchInterval    = 5 * time.Second // between fetches that tokens with an unknown key cause
	fetchTimeout        = 3 * time.Second
)

// The limits of the issuer's documents.
const (
	maxDocument = 1 << 20
	maxKeys     = 100
	maxModulus  = 1024 // bytes, of an RSA key with 8192 bits
)

// keysUnavailableError reports that the current keys could not be fetched, so that a token can be neither accepted nor
// rejected.
type keysUnavailableError struct{ cause error }

func (e *keysUnavailableError) Error() string {
	if e.cause == nil {
		return "the issuer's keys have not been fetched yet"
	}
	return "the issuer's keys cannot be fetched: " + e.cause.Error()
}

// keySet caches the keys that an issuer publishes (OpenID Connect Discovery 1.0, section 4; RFC 7517).
type keySet struct {
	// issuer is the value of the iss claim. For some issuers it ends with a slash.
	issuer string
	client *http.Client
	now    func() time.Time

	// fetching is held during a fetch, so that one fetch serves all callers that wait for it.
	fetching sync.Mutex

	mu   sync.Mutex
	byID map[string]*rsa.PublicKey
	// fetched is the time of the last successful fetch, attempted that of the last attempt, and lastErr its error.
	fetched, attempted time.Time
	lastErr            error
}

// run fetches the keys every keysRefreshInterval, and more often after failures, until ctx ends.
func (k *keySet) run(ctx context.Context) {
	retry := backoff.New(minKeysRetry, maxKeysRetry)
	for ctx.Err() == nil {
		if k.refresh(ctx) != nil {
			_ = retry.Wait(ctx)
			continue
		}
		retry.Reset()
		_ = backoff.Sleep(ctx, keysRefreshInterval)
	}
}

// ready returns an error if there are no keys or if they are older than maxKeysAge.
func (k *keySet) ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		return &keysUnavailableError{k.lastErr}
	}
	if age := k.now().Sub(k.fetched); age > maxKeysAge {
		return fmt.Errorf("the issuer's keys were last fetched %s ago: %w", age.Round(time.Minute), &keysUnavailableError{k.lastErr})
	}
	return nil
}

// find returns the key with an ID. For an unknown ID it fetches the keys, but at most every minFetchInterval.
func (k *keySet) find(ctx context.Context, id string) (*rsa.PublicKey, error) {
	key, attempted, err := k.lookup(id)
	if key != nil || k.now().Sub(attempted) < minFetchInterval {
		return key, err
	}
	k.fetching.Lock()
	defer k.fetching.Unlock()
	if key, latest, err := k.lookup(id); key != nil || latest.After(attempted) {
		return key, err
	}
	// Other requests wait for this fetch, so it must not be canceled with the request that started it.
	_ = k.fetchLocked(context.WithoutCancel(ctx))
	key, _, err = k.lookup(id)
	return key, err
}

// lookup returns the cached key with an ID and the time of the last attempt to fetch keys.
func (k *keySet) lookup(id string) (*rsa.PublicKey, time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		return nil, k.attempted, &keysUnavailableError{k.lastErr}
	}
	switch key := k.byID[id]; {
	case key != nil:
		return key, k.attempted, nil
	case k.lastErr != nil:
		// The issuer may have added the key since the last successful fetch.
		return nil, k.attempted, &keysUnavailableError{k.lastErr}
	}
	return nil, k.attempted, errors.New("the issuer does not publish the key")
}

// refresh fetches the keys.
func (k *keySet) refresh(ctx context.Context) error {
	k.fetching.Lock()
	defer k.fetching.Unlock()
	return k.fetchLocked(ctx)
}

// fetchLocked fetches the keys and stores the result. The caller holds fetching. After a failure the previous keys stay.
func (k *keySet) fetchLocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	fresh, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.attempted, k.lastErr = k.now(), err
	if err == nil {
		k.byID, k.fetched = fresh, k.attempted
	}
	return err
}

// fetch returns the keys that the issuer publishes.
func (k *keySet) fetch(ctx context.Context) (map[string]*rsa.PublicKey, error) {
	content, err := k.get(ctx, strings.TrimSuffix(k.issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var configuration struct {
		Issuer  string `json:"issuer"`
		KeysURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(content, &configuration); err != nil {
		return nil, errors.New("the issuer's OpenID configuration is not valid JSON")
	}
	if configuration.Issuer != k.issuer {
		return nil, fmt.Errorf("the OpenID configuration is that of issuer %q, want %q", configuration.Issuer, k.issuer)
	}
	if content, err = k.get(ctx, configuration.KeysURI); err != nil {
		return nil, err
	}
	return parseKeys(content)
}

// get returns the document at url.
func (k *keySet) get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s responded with status %d", url, response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err == nil && len(content) > maxDocument {
		err = fmt.Errorf("%s is larger than %d bytes", url, maxDocument)
	}
	return content, err
}

// parseKeys returns the RSA signing keys of a JSON Web Key Set by ID.
func parseKeys(content []byte) (map[string]*rsa.PublicKey, error) {
	var set struct {
		Keys []struct {
			Type     string `json:"kty"`
			Use      string `json:"use"`
			ID       string `json:"kid"`
			Modulus  string `json:"n"`
			Exponent string `json:"e"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, errors.New("the issuer's keys are not valid JSON")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the issuer has more than %d keys", maxKeys)
	}
	keys := map[string]*rsa.PublicKey{}
	for _, key := range set.Keys {
		if key.Type != "RSA" || key.ID == "" || (key.Use != "" && key.Use != "sig") {
			continue
		}
		modulus, err := base64.RawURLEncoding.DecodeString(key.Modulus)
		if err != nil || len(modulus) < 256 || len(modulus) > maxModulus {
			return nil, fmt.Errorf("the modulus of the issuer's key %q does not have 2048 to 8192 bits", key.ID)
		}
		exponent, err := base64.RawURLEncoding.DecodeString(key.Exponent)
		if err != nil || len(exponent) == 0 || len(exponent) > 4 {
			return nil, fmt.Errorf("the exponent of the issuer's key %q is invalid", key.ID)
		}
		e := new(big.Int).SetBytes(exponent).Int64()
		if e < 3 || e%2 == 0 || e > 1<<31-1 {
			return nil, fmt.Errorf("the exponent of the issuer's key %q is invalid", key.ID)
		}
		keys[key.ID] = &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(e)}
	}
	if len(keys) == 0 {
		return nil, errors.New("the issuer publishes no RSA signing key")
	}
	return keys, nil
}
