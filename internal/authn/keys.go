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
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The pace at which keys are read.
const (
	keysRetry    = 500 * time.Millisecond // after a failure, twice as long after each further one
	keysMost     = 30 * time.Second
	keysRefresh  = time.Hour
	keysOldest   = 24 * time.Hour
	keysAtMost   = 5 * time.Second // one reading for tokens with an unknown key within this time
	keysDeadline = 3 * time.Second
)

// The bounds of the issuer's documents.
const (
	maxDocument = 1 << 20
	maxKeys     = 100
	maxModulus  = 1024 // bytes, of an RSA key with 8192 bits
)

// keysMissing is the error while the keys could not be read, or not those of now: who is asking cannot be decided.
type keysMissing struct{ cause error }

func (e *keysMissing) Error() string {
	if e.cause == nil {
		return "the issuer's keys have not been read yet"
	}
	return "the issuer's keys cannot be read: " + e.cause.Error()
}

// keys are the issuer's, as it publishes them (OpenID Connect Discovery 1.0, section 4; RFC 7517).
type keys struct {
	// issuer is as tokens name it; some issuers' names end with a slash.
	issuer string
	client *http.Client
	now    func() time.Time

	// reading is held while the documents are read, so that one reading serves all that wait for it.
	reading sync.Mutex

	mu   sync.Mutex
	byID map[string]*rsa.PublicKey
	// read is when they were last read, tried when that was last attempted, and failed what came of it.
	read, tried time.Time
	failed      error
}

func (k *keys) run(ctx context.Context) {
	again := keysRetry
	for {
		pause := keysRefresh
		if err := k.refresh(ctx); err != nil {
			pause = again/2 + rand.N(again)
			again = min(2*again, keysMost)
		} else {
			again = keysRetry
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (k *keys) ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		return &keysMissing{k.failed}
	}
	if age := k.now().Sub(k.read); age > keysOldest {
		return fmt.Errorf("the issuer's keys were last read %s ago: %w", age.Round(time.Minute), &keysMissing{k.failed})
	}
	return nil
}

// find is the key of an id. For one that is not known the keys are read again, but not all the time.
func (k *keys) find(ctx context.Context, id string) (*rsa.PublicKey, error) {
	key, tried, err := k.known(id)
	if key != nil || k.now().Sub(tried) < keysAtMost {
		return key, err
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	if key, again, err := k.known(id); key != nil || again.After(tried) {
		return key, err
	}
	// Others wait for this reading, too: it does not end with the request that happened to begin it.
	_ = k.readNow(context.WithoutCancel(ctx))
	key, _, err = k.known(id)
	return key, err
}

func (k *keys) known(id string) (*rsa.PublicKey, time.Time, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		return nil, k.tried, &keysMissing{k.failed}
	}
	switch key := k.byID[id]; {
	case key != nil:
		return key, k.tried, nil
	case k.failed != nil:
		// It may be one that the issuer has made since.
		return nil, k.tried, &keysMissing{k.failed}
	}
	return nil, k.tried, errors.New("the key is not one of the issuer's")
}

func (k *keys) refresh(ctx context.Context) error {
	k.reading.Lock()
	defer k.reading.Unlock()
	return k.readNow(ctx)
}

// readNow reads the documents; reading is held. What was read before stays when that fails.
func (k *keys) readNow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keysDeadline)
	defer cancel()
	fresh, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tried, k.failed = k.now(), err
	if err == nil {
		k.byID, k.read = fresh, k.tried
	}
	return err
}

func (k *keys) fetch(ctx context.Context) (map[string]*rsa.PublicKey, error) {
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
		return nil, fmt.Errorf("the OpenID configuration is of the issuer %q, not of %q", configuration.Issuer, k.issuer)
	}
	if content, err = k.get(ctx, configuration.KeysURI); err != nil {
		return nil, err
	}
	return parseKeys(content)
}

func (k *keys) get(ctx context.Context, url string) ([]byte, error) {
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
		return nil, fmt.Errorf("%s answered %d", url, response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err == nil && len(content) > maxDocument {
		err = fmt.Errorf("%s is larger than %d bytes", url, maxDocument)
	}
	return content, err
}

// parseKeys reads a JSON Web Key Set: the RSA keys that sign.
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
	found := map[string]*rsa.PublicKey{}
	for _, key := range set.Keys {
		if key.Type != "RSA" || key.ID == "" || (key.Use != "" && key.Use != "sig") {
			continue
		}
		modulus, err := base64.RawURLEncoding.DecodeString(key.Modulus)
		if err != nil || len(modulus) < 256 || len(modulus) > maxModulus {
			return nil, fmt.Errorf("the modulus of the issuer's key %q is not one of 2048 to 8192 bits", key.ID)
		}
		exponent, err := base64.RawURLEncoding.DecodeString(key.Exponent)
		if err != nil || len(exponent) == 0 || len(exponent) > 4 {
			return nil, fmt.Errorf("the exponent of the issuer's key %q cannot be used", key.ID)
		}
		e := new(big.Int).SetBytes(exponent).Int64()
		if e < 3 || e%2 == 0 || e > 1<<31-1 {
			return nil, fmt.Errorf("the exponent of the issuer's key %q cannot be used", key.ID)
		}
		found[key.ID] = &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(e)}
	}
	if len(found) == 0 {
		return nil, errors.New("the issuer publishes no RSA key that signs")
	}
	return found, nil
}
