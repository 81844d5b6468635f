package keycache

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// The sizes of the modulus of an RSA key in bytes: 2048 to 8192 bits.
const minModulus, maxModulus = 256, 1024

// RSAKeys returns the RSA signing keys of a JSON Web Key Set (RFC 7517) by ID. It leaves out keys of other types and uses, and those that it cannot use:
// ignored has the reason for each of the latter. One such key hides no other (RFC 7517, section 5). Of several keys with an ID, the first one counts.
// It returns an error if the set is malformed, or has no usable key.
func RSAKeys(content []byte) (keys map[string]*rsa.PublicKey, ignored []string, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, nil, errors.New("the issuer's keys are not a JSON Web Key Set")
	}
	keys = map[string]*rsa.PublicKey{}
	wire.Elements("keys", "kid", slices.All(set.Keys), func(_ int, raw json.RawMessage) error {
		id, key, err := rsaKey(raw)
		switch {
		case err != nil:
			return err
		case key != nil && keys[id] != nil:
			return errors.New("another key has the same kid")
		case key != nil:
			keys[id] = key
		}
		return nil
	}, func(reason func() string) { ignored = append(ignored, reason()) })
	if len(keys) == 0 {
		return nil, ignored, fmt.Errorf("the issuer publishes no usable RSA signing key; unusable ones: %q", ignored)
	}
	return keys, ignored, nil
}

// rsaKey returns the ID and the key of a JSON Web Key (RFC 7518, section 6.3.1); a nil key for a key of another type or use.
func rsaKey(raw json.RawMessage) (id string, key *rsa.PublicKey, err error) {
	var k struct {
		Type     string `json:"kty"`
		Use      string `json:"use"`
		ID       string `json:"kid"`
		Modulus  string `json:"n"`
		Exponent string `json:"e"`
	}
	if err := wire.Unmarshal(raw, &k); err != nil {
		return "", nil, fmt.Errorf("it is not a JSON Web Key: %w", err)
	}
	if k.Type != "RSA" || k.Use != "" && k.Use != "sig" {
		return k.ID, nil, nil
	}
	if k.ID == "" {
		return "", nil, errors.New("kid is missing")
	}
	modulus, err := base64.RawURLEncoding.Strict().DecodeString(k.Modulus)
	if err != nil || len(modulus) < minModulus || len(modulus) > maxModulus {
		return k.ID, nil, errors.New("n is not a modulus of 2048 to 8192 bits in base64url without padding")
	}
	const maxExponent = 1<<31 - 1
	exponent, err := base64.RawURLEncoding.Strict().DecodeString(k.Exponent)
	e := new(big.Int).SetBytes(exponent)
	if err != nil || !e.IsInt64() || e.Int64() < 3 || e.Int64()%2 == 0 || e.Int64() > maxExponent {
		return k.ID, nil, errors.New("e is not an odd exponent of 3 to 2^31-1 in base64url without padding")
	}
	return k.ID, &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(e.Int64())}, nil
}
