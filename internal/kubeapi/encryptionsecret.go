package kubeapi

import (
	"fmt"
	"strconv"
)

// HostedEncryptionSecret is the Secret in a control plane's namespace with the keys of the hosted API server.
const HostedEncryptionSecret = "etcd-encryption-key"

// HostedPrefix returns the etcd key prefix of a hosted control plane, without a trailing slash. The control plane is identified by its
// namespace.
func HostedPrefix(controlPlane string) string { return "/hosted/" + controlPlane }

// Entries of HostedEncryptionSecret. HyperShift's Secrets with keys of etcd have the first one. A number that is missing is 1.
const (
	writeKeyEntry = "key"
	readKeyEntry  = "read-key"
	numberSuffix  = "-number"
)

// SecretData returns all data of HostedEncryptionSecret.
func (k EncryptionKeys) SecretData() map[string][]byte {
	data := map[string][]byte{}
	put := func(entry string, key EncryptionKey) {
		data[entry], data[entry+numberSuffix] = key.Secret, []byte(strconv.Itoa(key.Number))
	}
	put(writeKeyEntry, k.Write)
	if k.Read != nil {
		put(readKeyEntry, *k.Read)
	}
	return data
}

// EncryptionKeysOf returns the keys in the data of HostedEncryptionSecret. The errors contain no key.
func EncryptionKeysOf(data map[string][]byte) (EncryptionKeys, error) {
	read := func(entry string) (EncryptionKey, error) {
		key := EncryptionKey{Number: 1, Secret: data[entry]}
		if text, ok := data[entry+numberSuffix]; ok {
			var err error
			if key.Number, err = strconv.Atoi(string(text)); err != nil {
				return key, fmt.Errorf("reading the Secret %s: %s is not a number", HostedEncryptionSecret, entry+numberSuffix)
			}
		}
		return key, nil
	}
	var keys EncryptionKeys
	var err error
	if keys.Write, err = read(writeKeyEntry); err != nil {
		return EncryptionKeys{}, err
	}
	if _, ok := data[readKeyEntry]; ok {
		other, err := read(readKeyEntry)
		if err != nil {
			return EncryptionKeys{}, err
		}
		keys.Read = &other
	}
	if err := keys.Validate(); err != nil {
		return EncryptionKeys{}, fmt.Errorf("reading the Secret %s: %w", HostedEncryptionSecret, err)
	}
	return keys, nil
}
