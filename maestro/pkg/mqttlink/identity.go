package mqttlink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// Identity is the certificate of a client of the broker and the authorities that it trusts. Each connection uses the current files.
type Identity struct {
	own *certfile.Pair
	// roots is nil if the authorities of the system are trusted.
	roots *certfile.Roots
}

// LoadIdentity reads the identity in dir: tls.crt and tls.key, whose DNS name is the name of the client at the broker, and ca.crt with
// the trusted authorities. Without ca.crt, the authorities of the system are trusted: Event Grid has a certificate of a public one.
func LoadIdentity(dir string) (*Identity, error) {
	own, err := certfile.LoadPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("loading the MQTT identity: %w", err)
	}
	roots, err := certfile.LoadRoots(filepath.Join(dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return &Identity{own, nil}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("loading the MQTT identity: %w", err)
	}
	return &Identity{own, roots}, nil
}

// Collector returns the metric of the end of the client's certificate.
func (i *Identity) Collector() prometheus.Collector { return certfile.Collector(i.own.Certificate) }

// ClientTLS returns the TLS configuration of a client of the broker at an address (host:port). The certificate of the broker must name
// the host.
func (i *Identity) ClientTLS(address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address of the MQTT broker: %w", err)
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.own.Certificate(), nil },
		// VerifyConnection does the standard verification with the current authorities.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			intermediates := x509.NewCertPool()
			for _, certificate := range state.PeerCertificates[1:] {
				intermediates.AddCert(certificate)
			}
			options := x509.VerifyOptions{Intermediates: intermediates, DNSName: host}
			if i.roots != nil {
				options.Roots = i.roots.Pool()
			}
			_, err := state.PeerCertificates[0].Verify(options)
			return err
		},
	}, nil
}
