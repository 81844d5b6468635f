package postgresserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

const (
	// reloadCheck is the pause between two checks of the certificate that the server presents.
	reloadCheck = 20 * time.Millisecond
	// reloadTimeout bounds the wait for it.
	reloadTimeout = 30 * time.Second
)

// copyTLS copies the files of Options.TLS into the folder of the server.
func (s *Server) copyTLS() error {
	for name, source := range map[string]string{"server.crt": s.tls.CertificateFile, "server.key": s.tls.KeyFile, "ca.crt": s.tls.CAFile} {
		content, err := os.ReadFile(source)
		if err != nil {
			return fmt.Errorf("PostgreSQL: reading the files for TLS: %w", err)
		}
		if err := os.WriteFile(filepath.Join(s.accessDir, name), content, 0o600); err != nil {
			return fmt.Errorf("PostgreSQL: %w", err)
		}
	}
	return nil
}

// Reload makes a server with TLS use the current files of Options.TLS for its next connections. Connections stay open. The certificate
// must have been replaced: Reload returns when the server presents it. The server reads the authorities of its clients with it. If it
// refuses the files, the previous ones stay in use, and Reload returns an error.
func (s *Server) Reload(ctx context.Context) error {
	if s.tls == nil {
		return errors.New("PostgreSQL: the server has no TLS")
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if err := s.copyTLS(); err != nil {
		return err
	}
	if err := s.account.own(s.accessDir); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.accessDir, "server.crt"), filepath.Join(s.accessDir, "server.key"))
	if err != nil {
		return fmt.Errorf("PostgreSQL: reading the files for TLS: %w", err)
	}
	if err := s.process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("PostgreSQL: requesting to read the files for TLS: %w", err)
	}
	for {
		presented, err := s.presented(ctx)
		if err == nil && bytes.Equal(presented, pair.Certificate[0]) {
			return nil
		}
		if backoff.Sleep(ctx, reloadCheck) != nil {
			return errors.Join(errors.New("PostgreSQL does not present its new certificate"), err)
		}
	}
}

// requestTLS is the message with which a client of PostgreSQL asks for TLS.
const requestTLS = "\x00\x00\x00\x08\x04\xd2\x16\x2f"

// presented returns the certificate that the server presents to a new connection.
func (s *Server) presented(ctx context.Context) ([]byte, error) {
	connection, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	// Closing the connection ends a read or write that the server does not answer.
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	if _, err := io.WriteString(connection, requestTLS); err != nil {
		return nil, err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(connection, answer); err != nil {
		return nil, err
	}
	if answer[0] != 'S' {
		return nil, errors.New("PostgreSQL refuses TLS")
	}
	// Nothing is sent: the certificate is only compared.
	encrypted := tls.Client(connection, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return encrypted.ConnectionState().PeerCertificates[0].Raw, nil
}
