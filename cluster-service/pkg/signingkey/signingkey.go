// Package signingkey generates the keys with which hosted control planes sign service account tokens. A Pool generates them
// in advance. The package never logs a key.
package signingkey

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
)

// keyBits is the size of a key. It is RSA because Microsoft Entra verifies federated tokens with RS256 only.
const keyBits = 2048

// Pool generates signing keys in advance: generating one takes tens of milliseconds of processor time, for which the creation
// of a cluster would have to wait.
type Pool struct {
	ready    chan []byte
	generate func() ([]byte, error)
}

// NewPool returns a pool that holds up to ahead keys while Run runs. generate returns a new key, as Generate does.
func NewPool(ahead int, generate func() ([]byte, error)) *Pool {
	return &Pool{ready: make(chan []byte, ahead), generate: generate}
}

// Run fills the pool until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	for {
		key, err := p.generate()
		if err != nil {
			return err
		}
		select {
		case p.ready <- key:
		case <-ctx.Done():
			return nil
		}
	}
}

// Ready removes a key from the pool and returns it as PEM of PKCS #1. It returns nil if the pool is empty.
func (p *Pool) Ready() []byte {
	select {
	case key := <-p.ready:
		return key
	default:
		return nil
	}
}

// Take returns a key from the pool, or generates one.
func (p *Pool) Take() ([]byte, error) {
	if key := p.Ready(); key != nil {
		return key, nil
	}
	return p.generate()
}

// Generate returns a new service account signing key as PEM of PKCS #1.
func Generate() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}
