// Package secret keeps secret material of clusters encrypted at rest, and makes the keys with which hosted control planes
// sign service account tokens. A Keeper seals with AES-256-GCM under the region's key file, bound to the uid of the
// cluster, so that a sealed value cannot be moved to another row. Nothing of this package prints or logs what it opens.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const keySize = 32

// Keeper seals and opens.
type Keeper struct {
	aead cipher.AEAD
}

// NewKeeper seals with a key of 32 bytes.
func NewKeeper(key []byte) (*Keeper, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("a secrets key has %d bytes, not %d", keySize, len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &Keeper{aead: aead}, nil
}

// OpenKeyFile reads a key in base64. With create, a missing file is made with a fresh key, readable by the owner only:
// right for a local region, wrong where replicas do not share the file.
func OpenKeyFile(path string, create bool) (*Keeper, error) {
	text, err := os.ReadFile(path)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := makeKeyFile(path); err != nil {
			return nil, fmt.Errorf("making the secrets key file: %w", err)
		}
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the secrets key file: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the secrets key file %s is not base64", path)
	}
	keeper, err := NewKeeper(key)
	if err != nil {
		return nil, fmt.Errorf("the secrets key file %s: %w", path, err)
	}
	return keeper, nil
}

// makeKeyFile writes a new key beside and links it in place, so that of two processes one wins and both read its key.
func makeKeyFile(path string) error {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), ".secrets-key-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.WriteString(base64.StdEncoding.EncodeToString(key) + "\n")
	if err := errors.Join(err, part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := os.Link(part.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Seal encrypts plaintext for owner.
func (k *Keeper) Seal(owner string, plaintext []byte) ([]byte, error) {
	nonce := make([]byte, k.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return k.aead.Seal(nonce, nonce, plaintext, []byte(owner)), nil
}

// Open decrypts what Seal made for the same owner under the same key.
func (k *Keeper) Open(owner string, sealed []byte) ([]byte, error) {
	size := k.aead.NonceSize()
	if len(sealed) < size {
		return nil, errors.New("the sealed value is cut off")
	}
	plaintext, err := k.aead.Open(nil, sealed[:size], sealed[size:], []byte(owner))
	if err != nil {
		return nil, errors.New("the sealed value does not open: it was made under another key or for another owner")
	}
	return plaintext, nil
}
