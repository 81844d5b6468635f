package pki

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// NewSigner creates a self-signed authority with the given lifetime. Its NotBefore is now truncated to the second,
// because certificates have no fractions of seconds. Callers that compare NotBefore with a time must truncate that time
// as well.
func NewSigner(commonName string, now time.Time, lifetime time.Duration) (*Authority, error) {
	notBefore := now.Truncate(time.Second)
	return newAuthority(commonName, notBefore, notBefore.Add(lifetime))
}

// Certificate returns the authority's own certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Signed reports whether the authority signed a certificate.
func (a *Authority) Signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.cert) == nil
}

// ClientFor is like Client with another lifetime. The certificate ends no later than the authority.
func (a *Authority) ClientFor(commonName string, organizations []string, now time.Time, lifetime time.Duration) (Pair, error) {
	return a.leaf(a.client(pkix.Name{CommonName: commonName, Organization: organizations}, now, lifetime))
}

// SignRequest issues a client certificate for the key and the subject of a request. It ignores all other fields of the
// request.
func (a *Authority) SignRequest(request *x509.CertificateRequest, now time.Time, lifetime time.Duration) ([]byte, error) {
	template := a.client(request.Subject, now, lifetime)
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, request.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("signing the request of %q: %w", request.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func (a *Authority) client(subject pkix.Name, now time.Time, lifetime time.Duration) *x509.Certificate {
	end := now.Add(lifetime)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	return &x509.Certificate{
		Subject:               subject,
		NotBefore:             now.Add(-backdate),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
}

// ReadCertificates parses all certificates of a bundle and ignores other PEM blocks.
func ReadCertificates(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	return certs, nil
}

// Bundle returns certificates as concatenated PEM blocks.
func Bundle(certs []*x509.Certificate) []byte {
	var text []byte
	for _, cert := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return text
}
