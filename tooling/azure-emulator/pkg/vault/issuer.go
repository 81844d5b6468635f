package vault

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// authorityPrefix is the prefix of the authorities in the bucket of certificates. Names of certificates have no colon.
const authorityPrefix = "issuer:"

// createVersion creates a version of a certificate with its key, according to the policy.
func (s *Server) createVersion(c *certificate) (*certificateVersion, error) {
	p, err := parsePolicy(c.Policy)
	if err != nil {
		return nil, err
	}
	months := p.X509.Months
	if months == 0 {
		months = 12
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: strings.TrimPrefix(strings.Split(p.X509.Subject, ",")[0], "CN=")}, DNSNames: p.X509.Names.DNS,
		NotBefore: s.Now().Add(-backdate), NotAfter: s.Now().AddDate(0, months, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if s.Lifetime > 0 {
		template.NotBefore, template.NotAfter = s.Now(), s.Now().Add(s.Lifetime)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	key, err := newKey(p)
	if err != nil {
		return nil, err
	}
	var signer any = key
	parent := template
	if p.Issuer.Name != "Self" {
		if parent, signer, err = s.issuerAuthority(p.Issuer.Name); err != nil {
			return nil, err
		}
	}
	id := uuid.New()
	v := &certificateVersion{Version: hex.EncodeToString(id[:]), Issued: s.Now()}
	if v.Raw, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer); err != nil {
		return nil, err
	}
	if v.Key, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
		return nil, err
	}
	return v, nil
}

// newKey creates a key of the policy's type.
func newKey(p *policy) (crypto.Signer, error) {
	switch strings.TrimSuffix(p.Key.Type, "-HSM") {
	case "", "RSA":
		size := p.Key.Size
		if size == 0 {
			size = 2048
		}
		if size < 2048 || size > 4096 {
			return nil, newError(http.StatusBadRequest, "BadParameter", "The key size %d is not supported.", size)
		}
		return rsa.GenerateKey(rand.Reader, size)
	case "EC":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return nil, newError(http.StatusBadRequest, "BadParameter", "The key type '%s' is not supported.", p.Key.Type)
}

// issuerAuthority returns the certificate and the key of an issuer. It creates them for the first use.
func (s *Server) issuerAuthority(name string) (*x509.Certificate, any, error) {
	c := &certificate{}
	found := false
	id := authorityPrefix + strings.ToLower(name)
	err := s.Store.View(func(tx *store.Tx) (err error) {
		found, err = tx.Get(certificates, id, c)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if !found {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: s.Now().Add(-time.Hour), NotAfter: s.Now().AddDate(10, 0, 0),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
		raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		encoded, keyErr := x509.MarshalPKCS8PrivateKey(key)
		if err := errors.Join(err, keyErr); err != nil {
			return nil, nil, err
		}
		c = &certificate{Name: id, certificateVersion: certificateVersion{Raw: raw, Key: encoded}, Created: s.Now()}
		if err := s.save(c); err != nil {
			return nil, nil, err
		}
	}
	parsed, err := x509.ParseCertificate(c.Raw)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(c.Key)
	return parsed, key, err
}
