package relay_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/relay"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	dialed := must.Get(net.Dial("tcp", listener.Addr().String()))(t)
	accepted := must.Get(listener.Accept())(t)
	t.Cleanup(func() {
		_ = dialed.Close()
		_ = accepted.Close()
	})
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// start relays between two connections and returns their other ends. ended is closed when Copy returns.
func start(ctx context.Context, t *testing.T) (client, server *net.TCPConn, ended chan struct{}) {
	t.Helper()
	client, fromClient := pair(t)
	toServer, server := pair(t)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		relay.Copy(ctx, fromClient, toServer)
	}()
	return client, server, ended
}

// TestCopyPassesOnTheEndOfOneDirection ends the request of a client. The server reads it to its end and can still respond.
func TestCopyPassesOnTheEndOfOneDirection(t *testing.T) {
	client, server, ended := start(t.Context(), t)
	must.Get(client.Write([]byte("request")))(t)
	must.Do(t, client.CloseWrite())
	if got, err := io.ReadAll(server); err != nil || string(got) != "request" {
		t.Fatalf("the server read %q, %v", got, err)
	}
	must.Get(server.Write([]byte("response")))(t)
	must.Do(t, server.Close())
	if got, err := io.ReadAll(client); err != nil || string(got) != "response" {
		t.Errorf("the client read %q, %v", got, err)
	}
	<-ended
}

// TestCopyEndsWithItsContext checks that idle connections are closed when the context ends.
func TestCopyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client, server, ended := start(ctx, t)
	cancel()
	<-ended
	for name, connection := range map[string]net.Conn{"client": client, "server": server} {
		if n, err := connection.Read(make([]byte, 1)); err == nil || n > 0 {
			t.Errorf("the connection of the %s is open: read %d bytes", name, n)
		}
	}
}
