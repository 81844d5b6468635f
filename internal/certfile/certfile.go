// Package certfile reads certificates, keys and trusted authorities from files that are replaced while a process runs. Each TLS handshake
// uses the current ones. While a replacement is incomplete or invalid, the previous content stays in use.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Pair is a certificate with its key. It is safe for concurrent use.
type Pair struct {
	*disk.Value[*tls.Certificate]
}

// LoadPair reads a certificate and its key from PEM files.
func LoadPair(certificateFile, keyFile string) (*Pair, error) {
	w, err := disk.NewValue(func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certificateFile, keyFile)
		return &pair, err
	}, certificateFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &Pair{w}, nil
}

// Certificate returns the current certificate.
func (p *Pair) Certificate() *tls.Certificate { return p.Current() }

// ServerConfig returns a configuration for servers that accept clients without a certificate.
func (p *Pair) ServerConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.Certificate(), nil }}
}

// Roots are the authorities that a process trusts. They are safe for concurrent use.
type Roots struct {
	*disk.Value[*x509.CertPool]
}

// LoadRoots reads authorities from a file with PEM certificates.
func LoadRoots(file string) (*Roots, error) {
	w, err := disk.NewValue(func() (*x509.CertPool, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s contains no certificate", file)
		}
		return pool, nil
	}, file)
	if err != nil {
		return nil, err
	}
	return &Roots{w}, nil
}

// Pool returns the current authorities. The pool must not be changed.
func (r *Roots) Pool() *x509.CertPool { return r.Current() }
