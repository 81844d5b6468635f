package keyfile

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/hybrid"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/jwt"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Key is what may be shown of a key.
type Key struct {
	ID uint32
	// Type is what the key is for.
	Type    string
	Primary bool
	Enabled bool
}

// kinds are the kinds of keys of hcpmesh, by the type in a keyset.
var kinds = map[string]struct {
	name     string
	template func() *tinkpb.KeyTemplate
}{
	"type.googleapis.com/google.crypto.tink.AesGcmKey":          {"sealing", aead.AES256GCMKeyTemplate},
	"type.googleapis.com/google.crypto.tink.HpkePrivateKey":     {"opening", hybrid.DHKEM_X25519_HKDF_SHA256_HKDF_SHA256_AES_256_GCM_Key_Template},
	"type.googleapis.com/google.crypto.tink.JwtEcdsaPrivateKey": {"signing", jwt.ES256Template},
}

// List returns the keys of a keyset, in the order of the file.
func List(path string) ([]Key, error) {
	handle, err := Read(path)
	if err != nil {
		return nil, err
	}
	info := handle.KeysetInfo()
	var keys []Key
	for _, key := range info.GetKeyInfo() {
		kind, ok := kinds[key.GetTypeUrl()]
		if !ok {
			kind.name = key.GetTypeUrl()
		}
		keys = append(keys, Key{ID: key.GetKeyId(), Type: kind.name, Primary: key.GetKeyId() == info.GetPrimaryKeyId(), Enabled: key.GetStatus() == tinkpb.KeyStatusType_ENABLED})
	}
	return keys, nil
}

// Add adds a new key of the type of the primary key, and returns its ID. It is not the primary key: it opens and verifies, but does not
// seal or sign yet.
func Add(path string) (id uint32, err error) {
	err = change(path, func(handle *keyset.Handle, manager *keyset.Manager) error {
		info := handle.KeysetInfo()
		for _, key := range info.GetKeyInfo() {
			if key.GetKeyId() != info.GetPrimaryKeyId() {
				continue
			}
			kind, ok := kinds[key.GetTypeUrl()]
			if !ok {
				return fmt.Errorf("keys of type %s are not supported", key.GetTypeUrl())
			}
			id, err = manager.Add(kind.template())
			return err
		}
		return errors.New("the keyset has no primary key")
	})
	return id, err
}

// Promote makes a key the primary key, which seals or signs.
func Promote(path string, id uint32) error {
	return change(path, func(_ *keyset.Handle, manager *keyset.Manager) error { return manager.SetPrimary(id) })
}

// Remove deletes a key that is not the primary key. Nothing opens what it sealed after that.
func Remove(path string, id uint32) error {
	return change(path, func(_ *keyset.Handle, manager *keyset.Manager) error { return manager.Delete(id) })
}

// change replaces a keyset by a changed one. A reader sees the previous keyset or the changed one.
func change(path string, edit func(*keyset.Handle, *keyset.Manager) error) error {
	handle, err := Read(path)
	if err != nil {
		return err
	}
	manager := keyset.NewManagerFromHandle(handle)
	if err := edit(handle, manager); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	changed, err := manager.Handle()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(changed, keyset.NewJSONWriter(&text)); err != nil {
		return fmt.Errorf("%s: the changed keyset cannot be written", path) // the error may quote a key
	}
	return disk.Replace(path, text.Bytes(), 0o600)
}
