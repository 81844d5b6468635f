package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
)

// holdConnections are the programs whose servers do not close each silent connection, with the reason.
var holdConnections = map[string]string{
	"etcd": "it has no limit for handshakes and headers, and no flag for one; in Azure, only the API servers of its control plane reach it",
}

// TestSilentClientsHoldNoPort connects to each port of the region as clients that send nothing, half of a TLS handshake, or half of the header of a
// request, and then nothing more. The server closes each connection, however long its limit is. It listens on loopback only.
func TestSilentClientsHoldNoPort(t *testing.T) {
	needsRegion(t)
	nightly.Only(t) // it waits for the longest limit of all servers
	t.Parallel()
	listeners, err := procfs.Listeners(os.Getpid())
	if err != nil || len(listeners) < len(region.Endpoints().Ops) {
		t.Fatalf("%d ports: %v", len(listeners), err)
	}
	ctx, cancel := eventually.Context(t)
	defer cancel()
	var connections sync.WaitGroup
	for _, l := range listeners {
		program := filepath.Base(strings.Fields(l.Command)[0])
		if !l.Address.Addr().IsLoopback() {
			t.Errorf("%s listens on %s", program, l.Address)
			continue
		}
		if holdConnections[program] != "" {
			continue
		}
		for client, begin := range map[string]func(net.Conn) (net.Conn, error){
			"nothing":                        func(c net.Conn) (net.Conn, error) { return c, nil },
			"half of a handshake":            send("\x16\x03\x01\x00\xff\x01"),
			"half of a header":               send(halfHeader),
			"half of a header after the TLS": headerOverTLS,
		} {
			connections.Go(func() {
				if took, err := closes(l.Address.String(), begin, ctx.Done()); err != nil {
					t.Errorf("%s at %s, client that sends %s: %v", l.Command, l.Address, client, err)
				} else {
					t.Logf("%s at %s closes a client that sends %s after %s", program, l.Address, client, took.Round(time.Second))
				}
			})
		}
	}
	connections.Wait()
}

// halfHeader is a header of HTTP without its end.
const halfHeader = "GET /healthz HTTP/1.1\r\nHost: a\r\n"

// send returns a client that sends a text and nothing more.
func send(text string) func(net.Conn) (net.Conn, error) {
	return func(c net.Conn) (net.Conn, error) {
		_, err := io.WriteString(c, text)
		return c, err
	}
}

// headerOverTLS sends half of a header after a handshake without a certificate. A server without TLS, or one that requires a certificate, ends it.
func headerOverTLS(c net.Conn) (net.Conn, error) {
	secured := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the client is an attacker
	if err := secured.Handshake(); err != nil {
		return c, nil //nolint:nilerr // the server refuses the handshake, and must close the connection
	}
	return send(halfHeader)(secured)
}

// closes connects to an address as a client, and returns after which time the server has closed the connection. It returns an error if done is closed before.
func closes(address string, begin func(net.Conn) (net.Conn, error), done <-chan struct{}) (time.Duration, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = connection.Close() }()
	began := time.Now()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if client, err := begin(connection); err == nil {
			_, _ = io.Copy(io.Discard, client)
		}
	}()
	select {
	case <-closed:
		return time.Since(began), nil
	case <-done:
		return 0, fmt.Errorf("the connection is open after %s", time.Since(began).Round(time.Second))
	}
}
