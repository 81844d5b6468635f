package broker_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// pipes is a listener in memory.
type pipes struct{ accept, closed chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.accept:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

func (pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p pipes) connect() net.Conn {
	client, server := net.Pipe()
	p.accept <- server
	return client
}

// TestSilentConnectionsAreClosed checks when the broker closes a connection whose client sends something and then nothing.
func TestSilentConnectionsAreClosed(t *testing.T) {
	// send sends the first bytes of a CONNECT, all if count is negative.
	send := func(t *testing.T, connection net.Conn, keepAlive uint16, count int) {
		t.Helper()
		connect := packets.NewControlPacket(packets.CONNECT)
		content := connect.Content.(*packets.Connect)
		content.ProtocolName, content.ProtocolVersion, content.ClientID, content.KeepAlive, content.CleanStart = "MQTT", 5, "mgmt-1", keepAlive, true
		writer := io.Writer(connection)
		if count >= 0 {
			writer = &firstBytes{connection, count}
		}
		must.Get(connect.WriteTo(writer))(t)
	}
	const handshake, longest = 10 * time.Second, 1160 * time.Second
	for name, tc := range map[string]struct {
		begin func(t *testing.T, raw net.Conn, config *tls.Config) net.Conn
		after time.Duration
	}{
		"nothing": {func(_ *testing.T, raw net.Conn, _ *tls.Config) net.Conn { return raw }, handshake},
		"half a TLS handshake": {func(t *testing.T, raw net.Conn, _ *tls.Config) net.Conn {
			must.Get(raw.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1}))(t)
			return raw
		}, handshake},
		"no CONNECT": {func(t *testing.T, raw net.Conn, config *tls.Config) net.Conn { return authenticated(t, raw, config) }, handshake},
		"half a CONNECT": {func(t *testing.T, raw net.Conn, config *tls.Config) net.Conn {
			connection := authenticated(t, raw, config)
			send(t, connection, 30, 5)
			return connection
		}, handshake},
		"a keep-alive interval": {func(t *testing.T, raw net.Conn, config *tls.Config) net.Conn {
			connection := authenticated(t, raw, config)
			send(t, connection, 30, -1)
			return connection
		}, 45 * time.Second},
		"no keep-alive interval": {func(t *testing.T, raw net.Conn, config *tls.Config) net.Conn {
			connection := authenticated(t, raw, config)
			send(t, connection, 0, -1)
			return connection
		}, longest * 3 / 2},
		"the longest keep-alive interval": {func(t *testing.T, raw net.Conn, config *tls.Config) net.Conn {
			connection := authenticated(t, raw, config)
			send(t, connection, 65535, -1)
			return connection
		}, longest * 3 / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := pipes{make(chan net.Conn), make(chan net.Conn)}
				b := startOn(t, listener, broker.Options{Log: slog.New(slog.DiscardHandler)})
				config := &tls.Config{RootCAs: b.pool(), ServerName: "broker", Certificates: []tls.Certificate{b.issue("mgmt-1")}}
				began := time.Now()
				connection := tc.begin(t, listener.connect(), config)
				defer func() { _ = connection.Close() }()
				_ = connection.SetReadDeadline(began.Add(2 * longest)) // the connection may be closed
				_, _ = io.Copy(io.Discard, connection)                 // ends with the connection
				if took := time.Since(began); took != tc.after {
					t.Errorf("the broker closed the connection after %s, want %s", took, tc.after)
				}
			})
		})
	}
}

// authenticated returns a connection after its TLS handshake.
func authenticated(t *testing.T, raw net.Conn, config *tls.Config) net.Conn {
	t.Helper()
	connection := tls.Client(raw, config)
	must.Do(t, connection.HandshakeContext(t.Context()))
	return connection
}

// firstBytes writes the first bytes and discards the rest.
type firstBytes struct {
	io.Writer
	left int
}

func (w *firstBytes) Write(b []byte) (int, error) {
	kept := b[:min(len(b), w.left)]
	w.left -= len(kept)
	_, err := w.Writer.Write(kept)
	return len(b), err
}
