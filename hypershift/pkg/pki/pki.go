// Package pki creates the certificates of a hosted control plane: one root per cluster, the certificates that the root
// signs, and the signing key of service-account tokens. Keys are ECDSA P-256 and all data is PEM. The package writes
// nothing to disk and logs nothing.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Lifetimes as in HyperShift: ten years for the root, one year for leaf certificates.
const (
	rootLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// backdate makes a certificate valid for a peer whose clock is slow.
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

// NewAuthority creates a self-signed root.
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
		return nil, fmt.Errorf("creating authority %q: %w", commonName, err)
	}
	return ReadAuthority(pair)
}

// ReadAuthority parses a stored authority.
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
		return nil, errors.New("the certificate is not for the private key")
	}
	return &Authority{Pair: pair, cert: cert, key: key}, nil
}

// Server issues a serving certificate for names, which are DNS names or IP addresses.
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

// Client issues a client certificate: commonName is the user, organizations are the groups.
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

// sign creates a certificate with a random serial number. key is the subject's key, which becomes part of the pair.
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

// signingKeyBits is the size of a key for service-account tokens.
const signingKeyBits = 2048

// NewSigningKey creates a key for service-account tokens in the encoding that SigningPublicKey accepts, and returns it with its public key.
func NewSigningKey() (private, public []byte, err error) {
	key, err := rsa.GenerateKey(rand.Reader, signingKeyBits)
	if err != nil {
		return nil, nil, err
	}
	private = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	public, err = SigningPublicKey(private)
	return private, public, err
}

// SigningPublicKey returns the public key of a key for service-account tokens. As the operator, it accepts only an RSA key in PKCS #1.
func SigningPublicKey(private []byte) ([]byte, error) {
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, errors.New("no private key in PEM")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// encodeKey returns the SEC 1 encoding of an elliptic key.
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

// ReadCertificate parses the first certificate in text.
func ReadCertificate(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New("no certificate in PEM")
}

// ReadKey parses a private key in one of three encodings: PKCS #1, SEC 1 or PKCS #8. Its errors never contain the key.
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
		return nil, fmt.Errorf("a PEM block of type %q is not a private key", block.Type)
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
