package kubeapi

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/authority"
)

// EncryptionFile is the name of the encryption configuration in an authority's folder.
const EncryptionFile = "encryption.json"

// EncryptionKeySize is the size in bytes of a key of EncryptionConfiguration.
const EncryptionKeySize = 32

// manifestWorks are the resources whose specs contain the Secrets of hosted clusters on a management cluster.
const manifestWorks = "manifestworks.work.open-cluster-management.io"

// EncryptionConfiguration returns the configuration with which an API server encrypts Secrets, ConfigMaps and other resources before it
// stores them in etcd (XSalsa20 and Poly1305). It contains the key. The server can still read what an earlier release stored in clear,
// and encrypts it when it is written again.
func EncryptionConfiguration(key []byte, others ...string) ([]byte, error) {
	if len(key) != EncryptionKeySize {
		return nil, fmt.Errorf("the encryption key of etcd has %d bytes instead of %d", len(key), EncryptionKeySize)
	}
	type object = map[string]any
	return json.Marshal(object{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
		"resources": []object{{
			"resources": append([]string{"secrets", "configmaps"}, others...),
			"providers": []object{
				{"secretbox": object{"keys": []object{{"name": "key1", "secret": key}}}},
				{"identity": object{}},
			},
		}},
	})
}

// NewEncryptionKey returns a random key for EncryptionConfiguration.
func NewEncryptionKey() []byte {
	key := make([]byte, EncryptionKeySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// ensureEncryption creates the encryption configuration of the cluster with a random key, unless it exists: with another key, the API
// server could not read its data.
func (a *Authority) ensureEncryption() error {
	if _, err := os.Stat(a.Path(EncryptionFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	configuration, err := EncryptionConfiguration(NewEncryptionKey(), manifestWorks)
	if err != nil {
		return err
	}
	return authority.WriteDurably(a.Path(EncryptionFile), configuration, 0o600)
}
