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

// ClientTLS returns the TLS configuration of a client of the broker. dir contains tls.crt and tls.key, whose DNS name is the
// name of the client at the broker, and ca.crt with the trusted authorities. The files are read for each connection, so the
// next connection uses a rotated certificate. The certificate of the broker must name the host of address (host:port).
func ClientTLS(dir, address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address of the MQTT broker: %w", err)
	}
	load := func() (*tls.Certificate, *x509.CertPool, error) {
		certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, nil, fmt.Errorf("loading the MQTT identity: %w", err)
		}
		authorities, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			return nil, nil, fmt.Errorf("loading the MQTT identity: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authorities) {
			return nil, nil, errors.New("loading the MQTT identity: ca.crt contains no certificate")
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
		// VerifyConnection does the standard verification with the current authorities.
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
