package mqttlink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// ClientTLS is the client's side of a connection to the broker: its certificate, whose DNS name is its name at the
// broker, from tls.crt and tls.key in a folder, and the authorities it trusts from ca.crt. The files are read again for
// each connection, so a rotated certificate is used from the next one on. The address is the broker's host:port, whose
// host its certificate must name.
func ClientTLS(dir, address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the broker's address: %w", err)
	}
	load := func() (*tls.Certificate, *x509.CertPool, error) {
		certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, nil, fmt.Errorf("load the MQTT identity: %w", err)
		}
		authorities, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			return nil, nil, fmt.Errorf("load the MQTT identity: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authorities) {
			return nil, nil, errors.New("load the MQTT identity: ca.crt holds no certificate")
		}
		return &certificate, pool, nil
	}
	if _, _, err := load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, _, err := load()
			return certificate, err
		},
		// The standard verification, below, against the authorities as they are now.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, pool, err := load()
			if err != nil {
				return err
			}
			intermediates := x509.NewCertPool()
			for _, certificate := range state.PeerCertificates[1:] {
				intermediates.AddCert(certificate)
			}
			_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: intermediates, DNSName: host})
			return err
		},
	}, nil
}
