package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ServerTLS returns the TLS configuration of a broker: its certificate in tls.crt and tls.key in dir, which is read for
// each connection, and the authorities of the clients in ca.crt.
func ServerTLS(dir string) (*tls.Config, error) {
	load := func() (*tls.Certificate, error) {
		certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("loading the broker's certificate: %w", err)
		}
		return &certificate, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("loading the clients' authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, errors.New("loading the clients' authorities: ca.crt contains no certificate")
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		ClientAuth:     tls.RequireAndVerifyClientCert,
		ClientCAs:      pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() },
	}, nil
}
