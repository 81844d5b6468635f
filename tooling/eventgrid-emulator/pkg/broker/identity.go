package broker

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// Identity is the certificate of a broker and the authorities of its clients. Each TLS handshake uses the current files.
type Identity struct {
	own   *certfile.Pair
	roots *certfile.Roots
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
	return &Identity{own, roots}, nil
}

// Collector returns the metric of the end of the broker's certificate.
func (i *Identity) Collector() prometheus.Collector { return certfile.Collector(i.own.Certificate) }

// TLS returns the configuration of the broker's listener.
func (i *Identity) TLS() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert,
		// Tickets of a session could not be opened by the next configuration.
		SessionTicketsDisabled: true}
	listener := config.Clone()
	listener.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := config.Clone()
		current.Certificates, current.ClientCAs = []tls.Certificate{*i.own.Certificate()}, i.roots.Pool()
		return current, nil
	}
	return listener
}
