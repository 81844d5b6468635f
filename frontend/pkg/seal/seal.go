// Package seal keeps bytes that leave the frontend from everybody but the frontend: those that a client holds for it, and
// those that the store holds and must not be able to read. It is AES-256-GCM over the bytes, bound to what they are for:
// sealed bytes that were made up, changed, or taken to another place do not open.
//
// Keys come from a file and are rotated by writing a new first line: the first key seals, and all of them open, so that a
// key may go once nothing is left that it sealed. The package never shows a key.
package seal

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

// ErrInvalid says that bytes were not sealed with these keys, or for something else.
var ErrInvalid = errors.New("was not sealed with these keys for this purpose")

// Keys seal and open. They are safe for concurrent use.
type Keys struct {
	// aeads in order of preference: the first seals, all open.
	aeads []cipher.AEAD
}

// New makes Keys of keys of 32 bytes: the first seals, all open.
func New(keys ...[]byte) (*Keys, error) {
	if len(keys) == 0 {
		return nil, errors.New("no key")
	}
	k := &Keys{}
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
		k.aeads = append(k.aeads, aead)
	}
	return k, nil
}

// Random makes Keys that nobody else has, for a process that is alone and may forget.
func Random() (*Keys, error) {
	key := make([]byte, keySize)
	_, _ = rand.Read(key)
	return New(key)
}

// Load makes Keys of a file: a key of 32 bytes in base64 on each line, the one to seal with first.
func Load(path string) (*Keys, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading keys: %w", err)
	}
	var keys [][]byte
	number := 0
	for line := range bytes.Lines(content) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil {
			return nil, fmt.Errorf("reading keys in %s: line %d is not base64", path, number)
		}
		keys = append(keys, key)
	}
	k, err := New(keys...)
	if err != nil {
		return nil, fmt.Errorf("reading keys in %s: %w", path, err)
	}
	return k, nil
}

// Seal seals content for a purpose, which Open must be told again.
func (k *Keys) Seal(purpose string, content []byte) []byte {
	return k.aeads[0].Seal(nil, nil, content, []byte(purpose))
}

// Open gives the content back, or ErrInvalid.
func (k *Keys) Open(purpose string, sealed []byte) ([]byte, error) {
	for _, aead := range k.aeads {
		if content, err := aead.Open(nil, nil, sealed, []byte(purpose)); err == nil {
			return content, nil
		}
	}
	return nil, ErrInvalid
}
