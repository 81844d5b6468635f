package mesh

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Lifetimes of what a local Authority issues.
const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	identityLifetime  = 365 * 24 * time.Hour
	// clockSkew is how far certificates are back-dated.
	clockSkew = 5 * time.Minute
)

// Authority is a region's certificate authority, for the local region and for tests. In AKS Istio's takes its place.
type Authority struct {
	trustDomain string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// OpenAuthority reads the authority of trustDomain from dir (ca.crt and ca.key), or makes it there.
func OpenAuthority(dir, trustDomain string) (*Authority, error) {
	authority, err := readAuthority(dir, trustDomain)
	if os.IsNotExist(err) {
		return makeAuthority(dir, trustDomain)
	}
	return authority, err
}

func readAuthority(dir, trustDomain string) (*Authority, error) {
	certificatePEM, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	certificateBlock, _ := pem.Decode(certificatePEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certificateBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("the authority in %s is not PEM", dir)
	}
	certificate, err := x509.ParseCertificate(certificateBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the authority in %s: %w", dir, err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the authority's key in %s: %w", dir, err)
	}
	return &Authority{trustDomain: trustDomain, certificate: certificate, key: key}, nil
}

func makeAuthority(dir, trustDomain string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "hcpmesh " + trustDomain},
		NotBefore:             time.Now().Add(-clockSkew),
		NotAfter:              time.Now().Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	authority := &Authority{trustDomain: trustDomain, certificate: template, key: key}
	certificatePEM, err := authority.sign(template, key)
	if err != nil {
		return nil, err
	}
	if err := writeKey(filepath.Join(dir, "ca.key"), key); err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(dir, CAFile), certificatePEM, 0o644); err != nil {
		return nil, err
	}
	return readAuthority(dir, trustDomain)
}

// CertificatePEM is the authority's own certificate.
func (a *Authority) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Issue writes an identity folder for a workload. Beside the SPIFFE id the certificate carries hosts, DNS names or IP
// addresses, for clients that check host names or brokers that read a DNS name.
func (a *Authority) Issue(dir string, peer Peer, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	id := ID{TrustDomain: a.trustDomain, Peer: peer}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: string(peer)},
		URIs:        []*url.URL{id.URL()},
		NotBefore:   time.Now().Add(-clockSkew),
		NotAfter:    time.Now().Add(identityLifetime),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificatePEM, err := a.sign(template, key)
	if err != nil {
		return fmt.Errorf("issuing a certificate for %s: %w", peer, err)
	}
	if err := writeKey(filepath.Join(dir, KeyFile), key); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, CertificateFile), certificatePEM, 0o644); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, CAFile), a.CertificatePEM(), 0o644)
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// writeFile replaces a file at once, so that a reader sees the old content or the new.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, data, mode); err != nil {
		return err
	}
	return os.Rename(part, path)
}
