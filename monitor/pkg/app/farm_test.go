package app

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// fault is what a server of a farm does instead of answering 200.
type fault string

// The faults.
const (
	// etcdAway answers 500 and reports that the check of etcd failed.
	etcdAway fault = "etcd-away"
	// hang reads requests and answers none.
	hang fault = "hang"
	// overload answers 429.
	overload fault = "overload"
	// expired presents an expired certificate to new connections, and closes the others.
	expired fault = "expired"
	// closed closes connections.
	closed fault = "closed"
)

// domain is the domain of the servers' names.
const domain = "farm.test"

// farm serves any number of API servers.
type farm struct {
	// Authorities verify the certificates of all servers, PEM.
	Authorities string

	address       string
	valid, ending tls.Certificate
	open          atomic.Int64
	accepted      atomic.Int64

	mu     sync.Mutex
	faults map[string]fault
	// last is the time of the last request to each host.
	last map[string]time.Time
}

// newFarm starts a farm that ends with the test.
func newFarm(t testing.TB) *farm {
	t.Helper()
	signer := must.Get(authority.Open(t.TempDir(), "farm"))(t)
	f := &farm{Authorities: string(signer.CertificatePEM()), faults: map[string]fault{}, last: map[string]time.Time{}}
	issue := func(lifetime time.Duration) tls.Certificate {
		path := filepath.Join(t.TempDir(), "tls")
		must.Do(t, signer.IssueFor(lifetime, path+".crt", path+".key", x509.Certificate{Subject: pkix.Name{CommonName: "farm"}}, "*."+domain))
		return must.Get(tls.LoadX509KeyPair(path+".crt", path+".key"))(t)
	}
	f.valid, f.ending = issue(30*24*time.Hour), issue(time.Nanosecond)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	f.address = listener.Addr().String()
	config := &tls.Config{MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if f.fault(hello.ServerName) == expired {
			return &f.ending, nil
		}
		return &f.valid, nil
	}}
	var connections sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.open.Add(1)
			f.accepted.Add(1)
			connections.Go(func() {
				defer f.open.Add(-1)
				stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
				defer stop()
				defer func() { _ = conn.Close() }()
				f.serve(tls.Server(conn, config))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		connections.Wait()
	})
	return f
}

// URL returns the URL of a server. Clients must use Dial.
func (f *farm) URL(name string) string { return "https://" + name + "." + domain + ":6443" }

// Dial connects to the farm instead of an address.
func (f *farm) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{KeepAlive: -1}).DialContext(ctx, network, f.address)
}

// Break makes servers fail, or with an empty fault work again.
func (f *farm) Break(fault fault, names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if f.faults[name+"."+domain] = fault; fault == "" {
			delete(f.faults, name+"."+domain)
		}
	}
}

// Open returns the number of open connections.
func (f *farm) Open() int64 { return f.open.Load() }

// Accepted returns the number of connections that were opened so far.
func (f *farm) Accepted() int64 { return f.accepted.Load() }

// LastRequest returns the time of the last request to a server, or the zero time.
func (f *farm) LastRequest(name string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[name+"."+domain]
}

// Address returns the address of the listener.
func (f *farm) Address() string { return f.address }

// received stores the time of a request and returns the fault of its server.
func (f *farm) received(host string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[host] = time.Now()
	return f.faults[host]
}

func (f *farm) fault(host string) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faults[host]
}

func (f *farm) serve(conn *tls.Conn) {
	reader := bufio.NewReaderSize(conn, 512)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		status, body := "200 OK", "ok"
		switch f.received(conn.ConnectionState().ServerName) {
		case etcdAway:
			status, body = "500 Internal Server Error", "[+]ping ok\n[-]etcd failed: reason withheld\n"+request.URL.Path[1:]+" check failed\n"
		case overload:
			status, body = "429 Too Many Requests", ""
		case hang:
			_, _ = io.Copy(io.Discard, reader)
			return
		case expired, closed:
			return
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body); err != nil {
			return
		}
	}
}
