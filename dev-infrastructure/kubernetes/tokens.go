package kubernetes

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// TokenIssuer is the issuer of the tokens of service accounts.
const TokenIssuer = "https://kubernetes.default.svc"

// TokenKey returns the public key with which the tokens of service accounts are verified, in PEM.
func (c *Cluster) TokenKey() ([]byte, error) { return publicKey(c.authority.Path("sa.key")) }

// publicKey returns the public key of an EC key in a PEM file.
func publicKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
