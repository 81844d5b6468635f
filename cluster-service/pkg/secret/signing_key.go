package secret

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// signingKeyBits is the size of a service account signing key. Microsoft Entra verifies federated tokens with RS256 only.
const signingKeyBits = 2048

// SigningKeys makes service account signing keys ahead of need: making one takes tens of milliseconds of processor time,
// which a create would otherwise wait for.
type SigningKeys struct {
	ready chan []byte
}

// NewSigningKeys keeps up to ahead keys ready while Run runs.
func NewSigningKeys(ahead int) *SigningKeys {
	return &SigningKeys{ready: make(chan []byte, ahead)}
}

// Run fills the store of keys until ctx is over.
func (s *SigningKeys) Run(ctx context.Context) error {
	for {
		key, err := makeSigningKey()
		if err != nil {
			return err
		}
		select {
		case s.ready <- key:
		case <-ctx.Done():
			return nil
		}
	}
}

// Ready gives a key, as PEM of PKCS #1, that nobody else has; nil when none is ready.
func (s *SigningKeys) Ready() []byte {
	select {
	case key := <-s.ready:
		return key
	default:
		return nil
	}
}

// Take gives a key that is ready, or makes one.
func (s *SigningKeys) Take() ([]byte, error) {
	if key := s.Ready(); key != nil {
		return key, nil
	}
	return makeSigningKey()
}

func makeSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, signingKeyBits)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}

// errNotPEM says nothing of the content, which is secret.
var errNotPEM = errors.New("the signing key is not an RSA key in PEM")

// PublicKey is the public half of a signing key, as PEM of PKIX.
func PublicKey(privatePEM []byte) ([]byte, error) {
	block, _ := pem.Decode(privatePEM)
	if block == nil {
		return nil, errNotPEM
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, errNotPEM
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
