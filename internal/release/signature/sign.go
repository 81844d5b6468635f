package signature

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Key is a private key that signs releases. A local region and tests have one; the key of OpenShift's publisher is in no region.
type Key struct {
	entity *openpgp.Entity
	now    func() time.Time
}

// KeyOptions configure a new key.
type KeyOptions struct {
	// Name is the name in the key's user ID.
	Name string
	// Lifetime is the time after which the key expires; 0 means never.
	Lifetime time.Duration
	// Now is the time of the key's creation and of its signatures; nil means the system's clock.
	Now func() time.Time
}

// NewKey generates a key (Ed25519).
func NewKey(o KeyOptions) (*Key, error) {
	k := &Key{now: o.Now}
	config := k.config()
	config.KeyLifetimeSecs = uint32(o.Lifetime / time.Second)
	entity, err := openpgp.NewEntity(o.Name, "", "", config)
	if err != nil {
		return nil, fmt.Errorf("generate an OpenPGP key: %w", err)
	}
	k.entity = entity
	return k, nil
}

func (k *Key) config() *packet.Config {
	return &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: k.now}
}

// LoadOrCreateKey returns the key of a file. It creates the file, which only its owner can read, if it does not exist.
func LoadOrCreateKey(path, name string) (*Key, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(path, name)
	}
	if err != nil {
		return nil, err
	}
	keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(text))
	if err != nil || len(keys) != 1 || keys[0].PrivateKey == nil {
		return nil, fmt.Errorf("%s is not one armored OpenPGP private key", path)
	}
	return &Key{entity: keys[0]}, nil
}

func createKey(path, name string) (*Key, error) {
	k, err := NewKey(KeyOptions{Name: name})
	if err != nil {
		return nil, err
	}
	text, err := armored(openpgp.PrivateKeyType, func(out *bytes.Buffer) error { return k.entity.SerializePrivate(out, nil) })
	if err != nil {
		return nil, err
	}
	return k, disk.Replace(path, text, 0o600)
}

// PublicKey returns the armored public key, for a trust root.
func (k *Key) PublicKey() ([]byte, error) {
	return armored(openpgp.PublicKeyType, func(out *bytes.Buffer) error { return k.entity.Serialize(out) })
}

func armored(kind string, serialize func(*bytes.Buffer) error) ([]byte, error) {
	var binary, text bytes.Buffer
	if err := serialize(&binary); err != nil {
		return nil, err
	}
	out, err := armor.Encode(&text, kind, nil)
	if err != nil {
		return nil, err
	}
	if _, err := out.Write(binary.Bytes()); err != nil {
		return nil, err
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	text.WriteByte('\n')
	return text.Bytes(), nil
}

// Sign returns the message for an image.
func (k *Key) Sign(digest string, reference Reference) ([]byte, error) {
	var c content
	c.Critical.Type = messageType
	c.Critical.Image.Digest, c.Critical.Identity.Reference = digest, reference
	c.Optional.Creator = "hcpmesh local region"
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return k.sign(text)
}

// sign returns a message with any content.
func (k *Key) sign(text []byte) ([]byte, error) {
	var message bytes.Buffer
	in, err := openpgp.Sign(&message, k.entity, nil, k.config())
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	if _, err := in.Write(text); err != nil {
		return nil, err
	}
	if err := in.Close(); err != nil {
		return nil, err
	}
	return message.Bytes(), nil
}

// SignInto writes the message for an image to the folder of a store, unless the folder has the message already.
func (k *Key) SignInto(dir, digest string, reference Reference) error {
	path := filepath.Join(dir, filepath.FromSlash(name(digest, 1)))
	root := &TrustRoot{keys: openpgp.EntityList{k.entity}}
	if old, err := os.ReadFile(path); err == nil {
		if signed, err := root.Verify(digest, old, time.Now()); err == nil && signed == reference {
			return nil
		}
	}
	message, err := k.Sign(digest, reference)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return disk.Replace(path, message, 0o644)
}
