package kubeapi

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
)

// EncryptionKeySize is the size in bytes of a key of EncryptionConfiguration.
const EncryptionKeySize = 32

// EncryptionKey is a key of EncryptionConfiguration.
type EncryptionKey struct {
	// Number is 1 for the first key of a cluster, and one more for each later one. Values in etcd have it in clear, so the API server
	// finds their key.
	Number int
	// Secret has EncryptionKeySize bytes.
	Secret []byte
}

// EncryptionKeys are the keys of an API server.
//
// A rotation has three states: with the next key, which only decrypts; with the former key, which only decrypts; without another key.
type EncryptionKeys struct {
	// Write encrypts and decrypts. Read only decrypts; it is nil unless a rotation is in progress.
	Write EncryptionKey
	Read  *EncryptionKey
}

// NewEncryptionKeys returns a random first key.
func NewEncryptionKeys() EncryptionKeys { return EncryptionKeys{Write: newEncryptionKey(1)} }

func newEncryptionKey(number int) EncryptionKey {
	secret := make([]byte, EncryptionKeySize)
	_, _ = rand.Read(secret) // never fails
	return EncryptionKey{Number: number, Secret: secret}
}

// HasNext reports whether Read is the next key. API servers can decrypt with it, and none encrypts with it.
func (k EncryptionKeys) HasNext() bool { return k.Read != nil && k.Read.Number > k.Write.Number }

// HasFormer reports whether Read is the former key.
func (k EncryptionKeys) HasFormer() bool { return k.Read != nil && k.Read.Number < k.Write.Number }

// AddNext returns the keys with a random next key. No rotation must be in progress.
func (k EncryptionKeys) AddNext() EncryptionKeys {
	next := newEncryptionKey(k.Write.Number + 1)
	return EncryptionKeys{Write: k.Write, Read: &next}
}

// Promote returns the keys with the next key for encryption. The other one becomes the former key.
func (k EncryptionKeys) Promote() EncryptionKeys {
	former := k.Write
	return EncryptionKeys{Write: *k.Read, Read: &former}
}

// RemoveFormer returns the keys without the former one.
func (k EncryptionKeys) RemoveFormer() EncryptionKeys { return EncryptionKeys{Write: k.Write} }

// Validate returns an error if the keys cannot be used. It contains no key.
func (k EncryptionKeys) Validate() error {
	for _, key := range k.all() {
		if key.Number < 1 {
			return fmt.Errorf("the encryption key of etcd has the number %d: the first one is 1", key.Number)
		}
		if len(key.Secret) != EncryptionKeySize {
			return fmt.Errorf("the encryption key %d of etcd has %d bytes instead of %d", key.Number, len(key.Secret), EncryptionKeySize)
		}
	}
	if k.Read != nil && k.Read.Number == k.Write.Number {
		return fmt.Errorf("two encryption keys of etcd have the number %d", k.Write.Number)
	}
	return nil
}

// Equal reports whether both have the same keys.
func (k EncryptionKeys) Equal(other EncryptionKeys) bool {
	same := func(a, b EncryptionKey) bool { return a.Number == b.Number && bytes.Equal(a.Secret, b.Secret) }
	return same(k.Write, other.Write) && (k.Read == nil) == (other.Read == nil) && (k.Read == nil || same(*k.Read, *other.Read))
}

// all returns the keys in the order of EncryptionConfiguration.
func (k EncryptionKeys) all() []EncryptionKey {
	if k.Read == nil {
		return []EncryptionKey{k.Write}
	}
	return []EncryptionKey{k.Write, *k.Read}
}

const encryptionKeyName = "key"

func (k EncryptionKey) name() string { return encryptionKeyName + strconv.Itoa(k.Number) }

func numberOf(name string) (int, error) {
	text, ok := strings.CutPrefix(name, encryptionKeyName)
	number, err := strconv.Atoi(text)
	if !ok || err != nil {
		return 0, fmt.Errorf("the encryption key of etcd has the name %q instead of one like key1", name)
	}
	return number, nil
}

// EncryptedPrefix has the bytes with which each value in etcd begins that a key has encrypted.
const EncryptedPrefix = "k8s:enc:secretbox:v1:"

// Prefix returns the bytes with which each value in etcd begins that the key has encrypted.
func (k EncryptionKey) Prefix() string { return EncryptedPrefix + k.name() + ":" }
