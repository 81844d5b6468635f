// Package pki makes the certificates of a hosted control plane: one root of its own per cluster, what that root signs,
// and the key that service-account tokens are signed with. Keys are ECDSA P-256, everything is PEM, and nothing here
// is written to disk or logged.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Lifetimes. HyperShift's root lives ten years and its leaves one.
const (
	rootLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// backdate lets a certificate be used by a peer whose clock is a little behind.
	backdate = 5 * time.Minute
)

// Pair is a certificate with its private key, both PEM. Cert may hold a chain, leaf first.
type Pair struct{ Cert, Key []byte }

// Authority signs certificates.
type Authority struct {
	Pair
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes a self-signed root.
func NewAuthority(commonName string, now time.Time) (*Authority, error) {
	return newAuthority(commonName, now.Add(-backdate), now.Add(rootLifetime))
}

func newAuthority(commonName string, notBefore, notAfter time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName, OrganizationalUnit: []string{"openshift"}},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	pair, err := sign(template, template, key, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making authority %q: %w", commonName, err)
	}
	return ReadAuthority(pair)
}

// ReadAuthority reads an authority that was stored.
func ReadAuthority(pair Pair) (*Authority, error) {
	cert, err := ReadCertificate(pair.Cert)
	if err != nil {
		return nil, err
	}
	key, err := ReadKey(pair.Key)
	if err != nil {
		return nil, err
	}
	if public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("certificate and private key do not belong together")
	}
	return &Authority{Pair: pair, cert: cert, key: key}, nil
}

// Server signs a serving certificate for names, which may be DNS names and IP addresses.
func (a *Authority) Server(commonName string, names []string, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	return a.leaf(template)
}

// Client signs a client certificate: commonName is the user, organizations are the groups.
func (a *Authority) Client(commonName string, organizations []string, now time.Time) (Pair, error) {
	return a.leaf(&x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName, Organization: organizations},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(leafLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) leaf(template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	pair, err := sign(template, a.cert, a.key, key.Public(), key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing a certificate for %q: %w", template.Subject.CommonName, err)
	}
	return pair, nil
}

// sign fills in the serial number; key is the subject's, encoded into the pair.
func sign(template, parent *x509.Certificate, signer crypto.Signer, public crypto.PublicKey, key crypto.Signer) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

// NewSigningKey makes a key for service-account tokens and returns it with its public half.
func NewSigningKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	public, err = PublicKey(private)
	return private, public, err
}

// PublicKey returns the public half of a private key.
func PublicKey(private []byte) ([]byte, error) {
	key, err := ReadKey(private)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// encodeKey uses the oldest encoding of an elliptic key, which kube-apiserver reads for service-account keys, too.
func encodeKey(key crypto.Signer) ([]byte, error) {
	elliptic, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("cannot encode a %T", key)
	}
	der, err := x509.MarshalECPrivateKey(elliptic)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// ReadCertificate reads the first certificate of text.
func ReadCertificate(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New("no certificate in PEM")
}

// ReadKey reads a private key in any of the three encodings in use (PKCS #1, SEC 1, PKCS #8). Its errors never quote
// the key.
func ReadKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil {
		return nil, errors.New("no private key in PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a PEM block of type %q is no private key", block.Type)
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign", key)
	}
	return signer, nil
}
