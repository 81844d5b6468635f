package frontdoor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/relay"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// silentConn is a connection whose data is ignored from the time at which cut is closed, like that to a lost node.
type silentConn struct {
	net.Conn
	cut <-chan struct{}
}

func (c silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if isClosed(c.cut) {
		_, err := io.Copy(io.Discard, c.Conn)
		return 0, err
	}
	return n, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// relayUntil relays connections to a target. From the time at which cut is closed, it ignores what arrives over the connections that exist,
// without closing them, and relays new ones.
func relayUntil(t *testing.T, cut <-chan struct{}, target string) (address string) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			if !isClosed(cut) {
				client = silentConn{client, cut}
			}
			running.Go(func() { relay.Copy(ctx, client, server) })
		}
	})
	return listener.Addr().String()
}

// TestProviderThatDoesNotRespond checks that a request ends with 504 if the provider does not respond to it, and that requests do not wait
// for a connection that transports nothing: it is replaced.
func TestProviderThatDoesNotRespond(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	var slow atomic.Bool
	provider := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slow.Load() {
			<-r.Context().Done()
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{})
	}))
	provider.EnableHTTP2 = true
	provider.StartTLS()
	t.Cleanup(provider.Close)
	roots := x509.NewCertPool()
	roots.AddCert(provider.Certificate())
	cut := make(chan struct{})
	door := must.Get(New(Options{
		PublicURL: h.server.URL, Location: "westus3", APIVersions: []string{apiVersion}, ResponseTimeout: 2 * time.Second,
		Frontend: relayUntil(t, cut, strings.TrimPrefix(provider.URL, "https://")), FrontendTLS: &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13},
		Tokens: h.issuer, Directory: h.directory, Log: slog.New(slog.DiscardHandler),
	}))(t)
	t.Cleanup(door.Close)
	h.server.Config.Handler = door
	get := func() int {
		t.Helper()
		response, _ := h.do(t, http.MethodGet, clusterID("c")+"?api-version="+apiVersion, nil, nil)
		return response.StatusCode
	}
	await := func(want int) {
		t.Helper()
		eventually.Soon(t, fmt.Sprintf("the status %d", want), func() error {
			if got := get(); got != want {
				return fmt.Errorf("the status is %d", got)
			}
			return nil
		})

	}
	await(http.StatusOK)
	slow.Store(true)
	await(http.StatusGatewayTimeout)
	slow.Store(false)
	await(http.StatusOK)
	close(cut)
	await(http.StatusOK)
}
