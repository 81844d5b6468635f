// Package seal encrypts data that a service gives away or stores in a place that must not be able to read it: tokens that
// clients hold, private keys in Cosmos DB, signing keys in PostgreSQL. Sealed data is bound to a purpose, for example the UID
// of its owner. It cannot be opened after a change or for another purpose.
//
// Keys are a Tink keyset of AES-256-GCM keys in a JSON file. Each sealed value begins with the ID of its key, so a keyset is
// rotated by adding a key and making it primary: the primary key seals and all enabled keys open. The file holds the keys in
// clear text. In production it is a secret of Azure Key Vault that is mounted into the process; see
// docs/operators/sealing-keys.md. The package never logs keys or opened data, nor includes them in errors.
package seal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/core/cryptofmt"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

// ErrInvalid is returned for data that was not sealed with a key of the keyset for the same purpose.
var ErrInvalid = errors.New("was not sealed with a key of this keyset for this purpose")

// Keys seals and opens data. Each call uses the current file. It is safe for concurrent use.
type Keys struct {
	current func() *keyring
}

// keyring is the content of a file.
type keyring struct {
	aead tink.AEAD
	ring keyfile.Ring
}

// New returns a new random key. Nothing that it seals can be opened after the process has ended.
func New() (*Keys, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	k, err := fromHandle(handle)
	if err != nil {
		return nil, err
	}
	return &Keys{func() *keyring { return k }}, nil
}

func fromHandle(handle *keyset.Handle) (*keyring, error) {
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, errors.New("the keyset has no enabled primary key, or keys that do not encrypt with associated data")
	}
	info := handle.KeysetInfo()
	for _, key := range info.GetKeyInfo() {
		// Without its ID in each value, nobody could tell whether a key is still needed.
		if key.GetOutputPrefixType() != tinkpb.OutputPrefixType_TINK {
			return nil, fmt.Errorf("the key %d does not put its ID before the values that it seals: its output prefix must be TINK", key.GetKeyId())
		}
	}
	return &keyring{aead: primitive, ring: keyfile.RingOf(handle)}, nil
}

// Load reads a keyset from a JSON file, and follows changes of the file. If the changed file is not a keyset, the previous one stays in
// use.
func Load(path string) (*Keys, error) {
	value, err := disk.NewValue(func() (*keyring, error) { return read(path) }, path)
	if err != nil {
		return nil, err
	}
	return &Keys{value.Current}, nil
}

func read(path string) (*keyring, error) {
	handle, err := keyfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read sealing keys: %w", err)
	}
	k, err := fromHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("read sealing keys: %s: %w", path, err)
	}
	return k, nil
}

// Primary returns the ID of the primary key, which seals.
func (k *Keys) Primary() uint32 { return k.current().ring.Primary }

// Ring returns the IDs of the keys in use.
func (k *Keys) Ring() keyfile.Ring { return k.current().ring }

// KeyOf returns the ID of the key that sealed a value; 0 if it is no sealed value.
func KeyOf(sealed []byte) uint32 {
	if len(sealed) < cryptofmt.TinkPrefixSize || sealed[0] != cryptofmt.TinkStartByte {
		return 0
	}
	return binary.BigEndian.Uint32(sealed[1:cryptofmt.TinkPrefixSize])
}

// LoadOrCreate is Load that first creates a missing file with Create. It is for environments in which all replicas share the
// file.
func LoadOrCreate(path string) (*Keys, error) {
	if err := Create(path); err != nil {
		return nil, err
	}
	return Load(path)
}

// Create writes a keyset with one new key to a file that only its owner can read. It does nothing if the file exists. When
// several processes create the file at once, one of them writes it.
func Create(path string) error {
	if err := keyfile.Create(path, aead.AES256GCMKeyTemplate()); err != nil {
		return fmt.Errorf("create sealing keys: %w", err)
	}
	return nil
}

// Seal encrypts content for a purpose. It panics if content is longer than AES-GCM's limit of 64 GiB.
func (k *Keys) Seal(purpose string, content []byte) []byte {
	sealed, err := k.current().aead.Encrypt(content, []byte(purpose))
	if err != nil {
		panic(err)
	}
	return sealed
}

// Open decrypts data that Seal returned for the same purpose. It returns ErrInvalid for all other data.
func (k *Keys) Open(purpose string, sealed []byte) ([]byte, error) {
	content, err := k.current().aead.Decrypt(sealed, []byte(purpose))
	if err != nil {
		return nil, ErrInvalid
	}
	return content, nil
}
