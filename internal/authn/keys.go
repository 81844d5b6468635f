package authn

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/keycache"
)

// The limits of the issuer's keys.
const (
	maxKeys    = 100
	maxModulus = 1024 // bytes, of an RSA key with 8192 bits
)

// issuerKeys fetches the keys that an issuer publishes (OpenID Connect Discovery 1.0, section 4; RFC 7517).
type issuerKeys struct {
	// issuer is the value of the iss claim. For some issuers it ends with a slash.
	issuer string
	client *http.Client
}

// configuration is an OpenID configuration (OpenID Connect Discovery 1.0, section 3).
type configuration struct {
	Issuer  string `json:"issuer"`
	KeysURI string `json:"jwks_uri"`
	Endpoints
}

// configuration returns the OpenID configuration of the issuer.
func (k issuerKeys) configuration(ctx context.Context) (configuration, error) {
	content, err := keycache.Get(ctx, k.client, strings.TrimSuffix(k.issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return configuration{}, err
	}
	var c configuration
	if err := json.Unmarshal(content, &c); err != nil {
		return configuration{}, errors.New("the issuer's OpenID configuration is not valid JSON")
	}
	if c.Issuer != k.issuer {
		return configuration{}, fmt.Errorf("the OpenID configuration is that of issuer %q, want %q", c.Issuer, k.issuer)
	}
	return c, nil
}

// fetch returns the keys that the issuer publishes, by ID.
func (k issuerKeys) fetch(ctx context.Context) (map[string]*rsa.PublicKey, error) {
	known, err := k.configuration(ctx)
	if err != nil {
		return nil, err
	}
	content, err := keycache.Get(ctx, k.client, known.KeysURI)
	if err != nil {
		return nil, err
	}
	return parseKeys(content)
}

// findKey returns the key with an ID.
func findKey(ctx context.Context, keys *keycache.Cache[map[string]*rsa.PublicKey], id string) (*rsa.PublicKey, error) {
	known, found, err := keys.Find(ctx, func(byID map[string]*rsa.PublicKey) bool { return byID[id] != nil })
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, errors.New("the issuer does not publish the key")
	}
	return known[id], nil
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
