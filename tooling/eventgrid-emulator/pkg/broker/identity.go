package broker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Identity is the certificate of a broker and the authorities of its clients. Each TLS handshake uses the current files.
type Identity struct {
	own   *certfile.Pair
	roots *certfile.Roots
	// trustDomain is that of the broker's certificate, and of the certificates of its clients.
	trustDomain string
}

// LoadIdentity reads tls.crt, tls.key and ca.crt from dir.
func LoadIdentity(dir string) (*Identity, error) {
	own, err := certfile.LoadPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("loading the broker's certificate: %w", err)
	}
	roots, err := certfile.LoadRoots(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("loading the clients' authorities: %w", err)
	}
	id, err := idOf(own.Certificate().Leaf)
	if err != nil {
		return nil, fmt.Errorf("the broker's certificate: %w", err)
	}
	return &Identity{own, roots, id.TrustDomain}, nil
}

// idOf returns the SPIFFE ID in a certificate.
func idOf(certificate *x509.Certificate) (mesh.ID, error) {
	return mesh.PeerOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}})
}

// verify rejects clients of other regions, whose certificates the same authorities may have issued.
func (i *Identity) verify(state tls.ConnectionState) error {
	id, err := mesh.PeerOf(state)
	if err != nil {
		return err
	}
	if id.TrustDomain != i.trustDomain {
		return fmt.Errorf("the client %s belongs to another region than the trust domain %s", id.URL(), i.trustDomain)
	}
	return nil
}

// Collector returns the metric of the end of the broker's certificate.
func (i *Identity) Collector() prometheus.Collector { return certfile.Collector(i.own.Certificate) }

// TLS returns the configuration of the broker's listener.
func (i *Identity) TLS() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert,
		// Tickets of a session could not be opened by the next configuration.
		SessionTicketsDisabled: true,
		VerifyConnection:       i.verify}
	listener := config.Clone()
	listener.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := config.Clone()
		current.Certificates, current.ClientCAs = []tls.Certificate{*i.own.Certificate()}, i.roots.Pool()
		return current, nil
	}
	return listener
}
