package installation

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/relay"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestServerNameIsReadBeforeHandshake reads the server name of a client, and gives the bytes to a server with which the client then
// completes the handshake and verifies the certificate.
func TestServerNameIsReadBeforeHandshake(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Host) }))
	defer server.Close()
	names := make(chan string, 1)
	services := &Outside{}
	address := must.Get(services.forwardConnections(func(ctx context.Context, client net.Conn) {
		name, hello, err := readServerName(ctx, client)
		if err != nil {
			t.Error(err)
		}
		names <- name
		upstream, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := upstream.Write(hello); err != nil {
			t.Error(err)
		}
		relay.Copy(ctx, client, upstream)
	}))(t)
	defer func() {
		if err := services.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := server.Client()
	transport, _ := client.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	transport.TLSClientConfig.ServerName = ""
	response := must.Get(client.Get("https://example.com:6443/"))(t)
	defer func() { _ = response.Body.Close() }()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "example.com:6443" {
		t.Errorf("the server received %q, %v", text, err)
	}
	if name := <-names; name != "example.com" {
		t.Errorf("the server name is %q", name)
	}
	transport.CloseIdleConnections()
}

// TestServerNameNeedsTLS refuses a client that does not begin a handshake of TLS.
func TestServerNameNeedsTLS(t *testing.T) {
	client, other := net.Pipe()
	defer func() { _ = client.Close() }()
	go func() {
		_, _ = io.WriteString(other, "GET / HTTP/1.1\r\n\r\n")
		_ = other.Close()
	}()
	if name, _, err := readServerName(t.Context(), client); err == nil {
		t.Errorf("the server name is %q, want an error", name)
	}
}
