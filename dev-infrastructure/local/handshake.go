package local

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

const (
	// handshakePause is the pause between two handshakes with a server that must load files.
	handshakePause = 100 * time.Millisecond
	// handshakeTimeout bounds the wait for it. Kubernetes' servers compare their files every minute if they miss an event.
	handshakeTimeout = 3 * time.Minute
)

// awaitServer waits until a server presents a certificate of one of the authorities in roots, and names the authorities in clients, and no
// other, as those of the client certificates that it accepts. A nil clients stands for any. Both are PEM. It returns an error when
// handshakeTimeout has passed.
func awaitServer(ctx context.Context, address string, roots, clients []byte) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	for {
		err := checkServer(ctx, address, roots, clients)
		if err == nil {
			return nil
		}
		if backoff.Sleep(ctx, handshakePause) != nil {
			return fmt.Errorf("waiting for the server at %s to load the authorities: %w: %w", address, ctx.Err(), err)
		}
	}
}

// checkServer makes a handshake without a client certificate.
func checkServer(ctx context.Context, address string, roots, clients []byte) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(roots) {
		return fmt.Errorf("no authority of %s is trusted", address)
	}
	var accepted [][]byte
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			accepted = request.AcceptableCAs
			return &tls.Certificate{}, nil
		}}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if err := connection.Close(); err != nil {
		return err
	}
	if clients == nil {
		return nil
	}
	want, err := subjects(clients)
	if err != nil {
		return err
	}
	slices.SortFunc(accepted, bytes.Compare)
	if !slices.EqualFunc(accepted, want, bytes.Equal) {
		return fmt.Errorf("it accepts client certificates of %d authorities, not of the %d current ones", len(accepted), len(want))
	}
	return nil
}

// subjects returns the sorted subjects of certificates in DER.
func subjects(certificates []byte) ([][]byte, error) {
	var list [][]byte
	for block, rest := pem.Decode(certificates); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, certificate.RawSubject)
	}
	slices.SortFunc(list, bytes.Compare)
	return list, nil
}
