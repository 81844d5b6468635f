package secret

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
)

// signingKeyBits is the size of a service account signing key. Microsoft Entra verifies federated tokens with RS256 only.
const signingKeyBits = 2048

// SigningKeys makes service account signing keys ahead of need: making one takes tens of milliseconds of processor time,
// which a create would otherwise wait for.
type SigningKeys struct {
	ready chan []byte
	next  func() ([]byte, error)
}

// NewSigningKeys keeps up to ahead keys ready while Run runs, each of which next has made, as MakeSigningKey does.
func NewSigningKeys(ahead int, next func() ([]byte, error)) *SigningKeys {
	return &SigningKeys{ready: make(chan []byte, ahead), next: next}
}

// Run fills the store of keys until ctx is over.
func (s *SigningKeys) Run(ctx context.Context) error {
	for {
		key, err := s.next()
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
	return s.next()
}

// MakeSigningKey makes a service account signing key, as PEM of PKCS #1.
func MakeSigningKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, signingKeyBits)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}
