// Package authority implements a certificate authority whose key and certificate are files in a folder. It issues keys
// with certificates as files, for the local region and for tests. Callers pass the subject as a template: package mesh
// for identities, package kubeapi for Kubernetes users. On AKS the authorities of Istio and HyperShift are used
// instead.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Names of the files in an authority's folder.
const (
	CertificateFile = "ca.crt"
	KeyFile         = "ca.key"
)

// Lifetimes of the authority's own certificate and of those that it issues.
const (
	ownLifetime    = 10 * 365 * 24 * time.Hour
	issuedLifetime = 365 * 24 * time.Hour
	// clockSkew is subtracted from the beginning of validity, for peers with a slow clock; at most a tenth of the lifetime.
	clockSkew = 5 * time.Minute
)

// Authority signs certificates with the key in its folder.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Open reads the authority in dir, or creates one with the given common name.
func Open(dir, name string) (*Authority, error) {
	a, err := read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := create(dir, name); err != nil {
			return nil, fmt.Errorf("creating the certificate authority in %s: %w", dir, err)
		}
		a, err = read(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in %s: %w", dir, err)
	}
	return a, nil
}

func read(dir string) (*Authority, error) {
	certificatePEM, err := os.ReadFile(filepath.Join(dir, CertificateFile))
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, err
	}
	certificateBlock, _ := pem.Decode(certificatePEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certificateBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s or %s is not PEM", CertificateFile, KeyFile)
	}
	certificate, err := x509.ParseCertificate(certificateBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	return &Authority{certificate: certificate, key: key}, err
}

func create(dir, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-clockSkew),
		NotAfter:              time.Now().Add(ownLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	self := &Authority{certificate: template, key: key}
	certificatePEM, err := self.sign(template, key)
	if err != nil {
		return err
	}
	// The certificate is written last: the authority is complete if it exists.
	if err := writeKey(WriteDurably, filepath.Join(dir, KeyFile), key); err != nil {
		return err
	}
	return WriteDurably(filepath.Join(dir, CertificateFile), certificatePEM, 0o644)
}

// CertificatePEM returns the authority's own certificate.
func (a *Authority) CertificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Issue creates a key and a certificate for it that is valid for a year. The template defines subject and usage; hosts are additional DNS
// names and IP addresses. It writes both to files, the key first and readable only by its owner.
func (a *Authority) Issue(certificateFile, keyFile string, template x509.Certificate, hosts ...string) error {
	return a.IssueFor(issuedLifetime, certificateFile, keyFile, template, hosts...)
}

// IssueFor is Issue with the lifetime of the certificate.
func (a *Authority) IssueFor(lifetime time.Duration, certificateFile, keyFile string, template x509.Certificate, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.NotBefore = time.Now().Add(-min(clockSkew, lifetime/10))
	template.NotAfter = time.Now().Add(lifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	certificatePEM, err := a.sign(&template, key)
	if err != nil {
		return fmt.Errorf("issuing a certificate for %s: %w", template.Subject.CommonName, err)
	}
	if err := writeKey(WriteFile, keyFile, key); err != nil {
		return err
	}
	return WriteFile(certificateFile, certificatePEM, 0o644)
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

// EnsureKey creates a key in a file unless the file exists. It is for keys that sign without a certificate.
func EnsureKey(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(WriteDurably, path, key)
}

func writeKey(write func(string, []byte, fs.FileMode) error, path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return write(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// WriteFile replaces a file atomically, so that a reader sees the old content or the new. It creates the folder if
// necessary.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, data, mode); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// WriteDurably is WriteFile for content that cannot be created again. After a power failure the file has the old content or the new, and
// after WriteDurably has returned nil, the new.
func WriteDurably(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return disk.Replace(path, data, mode)
}
