package seal

import (
	"fmt"
	"strconv"

	"github.com/tink-crypto/tink-go/v2/hybrid"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

// PublicKeys seals data that only the holder of the corresponding PrivateKeys can open. It is safe for concurrent use.
//
// Keys are a Tink keyset for hybrid encryption with HPKE (RFC 9180): DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. The
// file of the public keyset is not secret.
type PublicKeys struct {
	encrypter tink.HybridEncrypt
	id        string
}

// ReadPublic reads a public keyset from a JSON file.
func ReadPublic(path string) (*PublicKeys, error) {
	handle, err := keyfile.ReadPublic(path)
	if err != nil {
		return nil, err
	}
	keys, err := publicKeys(handle)
	if err != nil {
		return nil, fmt.Errorf("%s is not a public Tink keyset for hybrid encryption with an enabled primary key", path)
	}
	return keys, nil
}

func publicKeys(handle *keyset.Handle) (*PublicKeys, error) {
	encrypter, err := hybrid.NewHybridEncrypt(handle)
	if err != nil {
		return nil, err
	}
	primary, err := handle.Primary()
	if err != nil {
		return nil, err
	}
	return &PublicKeys{encrypter: encrypter, id: strconv.FormatUint(uint64(primary.KeyID()), 10)}, nil
}

// NewPair returns new keys that exist only in this process.
func NewPair() (*PublicKeys, *PrivateKeys, error) {
	handle, err := keyset.NewHandle(pairTemplate())
	if err != nil {
		return nil, nil, err
	}
	decrypter, err := hybrid.NewHybridDecrypt(handle)
	if err != nil {
		return nil, nil, err
	}
	public, err := handle.Public()
	if err != nil {
		return nil, nil, err
	}
	keys, err := publicKeys(public)
	opening := &openers{decrypter, keyfile.RingOf(handle)}
	return keys, &PrivateKeys{func() *openers { return opening }}, err
}

func pairTemplate() *tinkpb.KeyTemplate {
	return hybrid.DHKEM_X25519_HKDF_SHA256_HKDF_SHA256_AES_256_GCM_Key_Template()
}

// ID returns the ID of the primary key, which seals. It changes when another key becomes the primary key.
func (k *PublicKeys) ID() string { return k.id }

// Seal encrypts content for a purpose.
func (k *PublicKeys) Seal(purpose string, content []byte) ([]byte, error) {
	return k.encrypter.Encrypt(content, []byte(purpose))
}

// PrivateKeys opens what PublicKeys sealed. It is safe for concurrent use.
type PrivateKeys struct {
	current func() *openers
}

// openers is the content of a file.
type openers struct {
	tink.HybridDecrypt
	ring keyfile.Ring
}

// LoadPrivate reads a private keyset from a JSON file, and follows changes of the file. If the changed file is not a private keyset, the
// previous one stays in use.
func LoadPrivate(path string) (*PrivateKeys, error) {
	value, err := disk.NewValue(func() (*openers, error) { return readPrivate(path) }, path)
	if err != nil {
		return nil, err
	}
	return &PrivateKeys{value.Current}, nil
}

func readPrivate(path string) (*openers, error) {
	handle, err := keyfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("read private keys: %w", err)
	}
	decrypter, err := hybrid.NewHybridDecrypt(handle)
	if err != nil {
		return nil, fmt.Errorf("read private keys: %s is not a private Tink keyset for hybrid encryption", path)
	}
	return &openers{decrypter, keyfile.RingOf(handle)}, nil
}

// Ring returns the IDs of the keys in use.
func (k *PrivateKeys) Ring() keyfile.Ring { return k.current().ring }

// Open decrypts data that PublicKeys sealed for the same purpose. It returns ErrInvalid for all other data.
func (k *PrivateKeys) Open(purpose string, sealed []byte) ([]byte, error) {
	content, err := k.current().Decrypt(sealed, []byte(purpose))
	if err != nil {
		return nil, ErrInvalid
	}
	return content, nil
}

// CreatePair writes a private keyset with one new key to a file that only its owner can read, unless the file exists, and the
// public keyset that belongs to it to another file.
func CreatePair(privatePath, publicPath string) error {
	if err := keyfile.Create(privatePath, pairTemplate()); err != nil {
		return fmt.Errorf("create private keys: %w", err)
	}
	return keyfile.WritePublic(privatePath, publicPath)
}
