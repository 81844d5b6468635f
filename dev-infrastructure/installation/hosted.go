package installation

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// serveHosted serves the API servers of hosted clusters in the cluster of the region, under the names of the clusters' DNS zone. In Azure,
// these names have public addresses. Here all of them have one address, and the server name in the first message of TLS selects the API
// server. The connection is not decrypted: client and API server verify each other.
func (p *Proxy) serveHosted(ctx context.Context) error {
	r := p.services.settings()
	hosts := r.hosted()
	if r.err != nil {
		return r.err
	}
	address, err := p.services.forwardConnections(p.relayHosted)
	if err != nil {
		return err
	}
	return p.services.Forward(ctx, hosts, hostedPort, address)
}

// helloTimeout bounds the time until a client has sent its first message.
const helloTimeout = 10 * time.Second

// relayHosted copies between a client and the API server that its first message names. It closes the connection of another client.
func (p *Proxy) relayHosted(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	_ = client.SetReadDeadline(time.Now().Add(helloTimeout))
	name, hello, err := readServerName(ctx, client)
	if err != nil || client.SetReadDeadline(time.Time{}) != nil {
		return
	}
	server, err := p.dial(ctx, net.JoinHostPort(name, hostedPort))
	if err != nil {
		return
	}
	if _, err := server.Write(hello); err != nil {
		_ = server.Close()
		return
	}
	relay.Copy(ctx, client, server)
}

// errServerName ends a handshake when the server name is known.
var errServerName = errors.New("the server name is known")

// readServerName reads the first message of TLS from a client. It returns the server name, and all bytes that it has read.
func readServerName(ctx context.Context, client net.Conn) (name string, read []byte, err error) {
	var recorded bytes.Buffer
	handshake := tls.Server(readOnly{client, io.TeeReader(client, &recorded)}, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errServerName
		},
	})
	if err := handshake.HandshakeContext(ctx); !errors.Is(err, errServerName) {
		return "", nil, err
	}
	return name, recorded.Bytes(), nil
}

// readOnly is a connection that discards what is written to it.
type readOnly struct {
	net.Conn
	reader io.Reader
}

func (c readOnly) Read(p []byte) (int, error)  { return c.reader.Read(p) }
func (c readOnly) Write(p []byte) (int, error) { return len(p), nil }
