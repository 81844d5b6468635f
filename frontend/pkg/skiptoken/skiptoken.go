// Package skiptoken seals the position of a list into the opaque token that its next page is asked for with, and opens
// it again. Tokens are AES-GCM over the position, bound to the list they were given for: one that was made up, changed,
// or taken to another list does not open.
package skiptoken

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
)

// keySize is that of AES-256, in bytes.
const keySize = 32

// maxToken bounds what Open looks at.
const maxToken = 8192

// ErrInvalid is a token that this list never gave.
var ErrInvalid = errors.New("the skip token is not valid for this list")

// Sealer makes and opens tokens. It is safe for concurrent use.
type Sealer struct {
	// keys in order of preference: the first seals, all open.
	keys []cipher.AEAD
}

// New makes a Sealer of keys of 32 bytes: the first seals, and all of them open, so that a key can be replaced while
// clients still hold tokens of the one before.
func New(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("no key")
	}
	sealer := &Sealer{}
	for _, key := range keys {
		if len(key) != keySize {
			return nil, fmt.Errorf("a key has %d bytes, not %d", len(key), keySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		sealer.keys = append(sealer.keys, aead)
	}
	return sealer, nil
}

// Random makes a Sealer whose tokens nobody else can open, for a process that is alone and may forget.
func Random() (*Sealer, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key)
	return New(key)
}

// Load makes a Sealer of a file: a key of 32 bytes in base64 on each line, the one to seal with first.
func Load(path string) (*Sealer, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the skip token keys: %w", err)
	}
	var keys [][]byte
	for line := range bytes.Lines(content) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil {
			return nil, fmt.Errorf("reading the skip token keys in %s: line %d is not base64", path, len(keys)+1)
		}
		keys = append(keys, key)
	}
	sealer, err := New(keys...)
	if err != nil {
		return nil, fmt.Errorf("reading the skip token keys in %s: %w", path, err)
	}
	return sealer, nil
}

// Seal makes a token of a position in a list.
func (s *Sealer) Seal(list, position string) string {
	return base64.RawURLEncoding.EncodeToString(s.keys[0].Seal(nil, nil, []byte(position), []byte(list)))
}

// Open gives the position back, or ErrInvalid.
func (s *Sealer) Open(list, token string) (string, error) {
	if len(token) > maxToken {
		return "", ErrInvalid
	}
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", ErrInvalid
	}
	for _, key := range s.keys {
		if position, err := key.Open(nil, nil, sealed, []byte(list)); err == nil {
			return string(position), nil
		}
	}
	return "", ErrInvalid
}
