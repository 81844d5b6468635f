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

// NewSigner makes a self-signed authority for a limited time. Its life begins at the second that now is in, which is what
// certificates can express: who compares its beginning with a moment must count in seconds, too.
func NewSigner(commonName string, now time.Time, lifetime time.Duration) (*Authority, error) {
	begin := now.Truncate(time.Second)
	return newAuthority(commonName, begin, begin.Add(lifetime))
}

// Certificate is the authority's own.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Signed reports whether the authority signed a certificate.
func (a *Authority) Signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.cert) == nil
}

// ClientFor is Client with another lifetime, which ends with the authority's own.
func (a *Authority) ClientFor(commonName string, organizations []string, now time.Time, lifetime time.Duration) (Pair, error) {
	return a.leaf(a.client(pkix.Name{CommonName: commonName, Organization: organizations}, now, lifetime))
}

// SignRequest signs a client certificate for the key and subject of a request, and for nothing else that it asks for.
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

// ReadCertificates reads all certificates of a bundle; what is not a certificate is passed over.
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

// Bundle writes certificates one after the other.
func Bundle(certs []*x509.Certificate) []byte {
	var text []byte
	for _, cert := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return text
}
