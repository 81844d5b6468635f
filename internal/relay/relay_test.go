package relay_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// pair returns the two ends of a TCP connection.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := client.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(server); err != nil || string(got) != "request" {
		t.Fatalf("the server read %q, %v", got, err)
	}
	if _, err := server.Write([]byte("response")); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
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
