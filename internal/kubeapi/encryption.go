package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/authority"
)

// EncryptionFile is the name of the encryption configuration in an authority's folder.
const EncryptionFile = "encryption.json"

// manifestWorks are the resources whose specs contain the Secrets of hosted clusters on a management cluster.
const manifestWorks = "manifestworks.work.open-cluster-management.io"

// encryptionConfiguration is EncryptionConfiguration of apiserver.config.k8s.io/v1, as far as it is used here.
type encryptionConfiguration struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Resources  []encryptionResources `json:"resources"`
}

type encryptionResources struct {
	Resources []string             `json:"resources"`
	Providers []encryptionProvider `json:"providers"`
}

// encryptionProvider has one member. The first provider and the first of its keys encrypt, all decrypt.
type encryptionProvider struct {
	Secretbox *secretbox `json:"secretbox,omitempty"`
	Identity  *struct{}  `json:"identity,omitempty"`
}

type secretbox struct {
	Keys []secretboxKey `json:"keys"`
}

type secretboxKey struct {
	Name   string `json:"name"`
	Secret []byte `json:"secret"`
}

// EncryptionConfiguration returns the configuration with which an API server encrypts Secrets, ConfigMaps and other resources before it
// stores them in etcd (XSalsa20 and Poly1305). It contains the keys. The server can still read what an earlier release stored in clear,
// and encrypts it when it is written again.
func EncryptionConfiguration(keys EncryptionKeys, others ...string) ([]byte, error) {
	if err := keys.Validate(); err != nil {
		return nil, err
	}
	box := &secretbox{}
	for _, key := range keys.all() {
		box.Keys = append(box.Keys, secretboxKey{Name: key.name(), Secret: key.Secret})
	}
	return json.Marshal(encryptionConfiguration{
		APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration",
		Resources: []encryptionResources{{
			Resources: append([]string{"secrets", "configmaps"}, others...),
			Providers: []encryptionProvider{{Secretbox: box}, {Identity: &struct{}{}}},
		}},
	})
}

// ReadEncryptionConfiguration returns the keys of a configuration that EncryptionConfiguration has returned, and the resources that are
// encrypted. The errors contain no key.
func ReadEncryptionConfiguration(text []byte) (keys EncryptionKeys, resources []string, err error) {
	var c encryptionConfiguration
	if json.Unmarshal(text, &c) != nil || len(c.Resources) != 1 || len(c.Resources[0].Resources) < 2 || len(c.Resources[0].Providers) == 0 || c.Resources[0].Providers[0].Secretbox == nil {
		return EncryptionKeys{}, nil, errors.New("not an encryption configuration with the provider secretbox for one list of resources")
	}
	resources = c.Resources[0].Resources
	var found []EncryptionKey
	for _, key := range c.Resources[0].Providers[0].Secretbox.Keys {
		number, err := numberOf(key.Name)
		if err != nil {
			return EncryptionKeys{}, nil, err
		}
		found = append(found, EncryptionKey{Number: number, Secret: key.Secret})
	}
	switch len(found) {
	case 1:
		keys.Write = found[0]
	case 2:
		keys.Write, keys.Read = found[0], &found[1]
	default:
		return EncryptionKeys{}, nil, fmt.Errorf("the encryption configuration has %d keys instead of one or two", len(found))
	}
	return keys, resources, keys.Validate()
}

// ensureEncryption creates the encryption configuration of the cluster with a random key, unless it exists: with another key, the API
// server could not read its data.
func (a *Authority) ensureEncryption() error {
	if _, err := os.Stat(a.Path(EncryptionFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	configuration, err := EncryptionConfiguration(NewEncryptionKeys(), manifestWorks)
	if err != nil {
		return err
	}
	return authority.WriteDurably(a.Path(EncryptionFile), configuration, 0o600)
}
