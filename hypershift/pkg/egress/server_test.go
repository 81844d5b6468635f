package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// proxy is a proxy with certificates whose name service and network are tables of the test.
type proxy struct {
	*Server
	url       *url.URL
	dial      func() (net.Conn, error) // connects to the proxy
	authority *kubeapi.EgressAuthority
	dir       string

	mu       sync.Mutex
	names    names
	network  map[string]string // addresses that exist, with the address of a server on this machine
	attempts []Attempt
	dialed   []netip.AddrPort
}

func newProxy(t *testing.T, change func(*Options)) *proxy {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	return serveProxy(t, listener, dialTCP(listener.Addr().String()), change)
}

func dialTCP(address string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", address) }
}

// serveProxy is newProxy at a listener, to which dial connects.
func serveProxy(t *testing.T, listener net.Listener, dial func() (net.Conn, error), change func(*Options)) *proxy {
	t.Helper()
	p := &proxy{dir: t.TempDir(), dial: dial, names: names{}, network: map[string]string{}}
	p.authority = must.Get(kubeapi.CreateEgressAuthority(p.dir))(t)
	options := Options{
		Policy: Policy{Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.names.lookup(ctx, host)
		}},
		Limits: DefaultLimits, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		OnAttempt: func(a Attempt) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.attempts = append(p.attempts, a)
		},
		Dial: func(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
			p.mu.Lock()
			p.dialed = append(p.dialed, address)
			server, exists := p.network[address.String()]
			p.mu.Unlock()
			if !exists {
				return nil, errors.New("no route to host")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", server)
		},
	}
	if change != nil {
		change(&options)
	}
	p.Server = NewServer(options)
	config := must.Get(kubeapi.EgressServerTLS(p.authority.CertificateFile(), p.authority.KeyFile(), p.authority.CAFile()))(t)
	server := p.HTTPServer(config)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
		p.Close()
	})
	p.url = &url.URL{Scheme: "https", Host: listener.Addr().String()}
	return p
}

func (p *proxy) set(host string, addresses ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[host] = addresses
}

// credentials returns the TLS configuration of a control plane.
func (p *proxy) credentials(t *testing.T, controlPlane string) *tls.Config {
	t.Helper()
	files := must.Get(p.authority.Issue(t.TempDir(), controlPlane))(t)
	pair := must.Get(tls.LoadX509KeyPair(files.CertificateFile, files.KeyFile))(t)
	text := must.Get(os.ReadFile(files.CAFile))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13}
}

// connect asks for a tunnel, as an API server does.
func (p *proxy) connect(t *testing.T, config *tls.Config, target string) (*tls.Conn, *http.Response) {
	t.Helper()
	plain := must.Get(p.dial())(t)
	config = config.Clone()
	config.ServerName = "127.0.0.1"
	connection := tls.Client(plain, config)
	t.Cleanup(func() { _ = connection.Close() })
	must.Get(fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", target))(t)
	reader := bufio.NewReader(connection)
	response := must.Get(http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}))(t)
	if reader.Buffered() > 0 && response.StatusCode == http.StatusOK {
		t.Errorf("%d bytes after the response", reader.Buffered())
	}
	return connection, response
}

// client returns an HTTPS client that uses the proxy as an API server does, and accepts the certificate of issuer.
func (p *proxy) client(t *testing.T, controlPlane string, issuer *httptest.Server) *http.Client {
	t.Helper()
	credentials := p.credentials(t, controlPlane)
	transport := issuer.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.ServerName = "example.com" // in the certificate of httptest
	transport.DialContext = func(_ context.Context, _, address string) (net.Conn, error) {
		connection, response := p.connect(t, credentials, address)
		if response.StatusCode != http.StatusOK {
			_ = connection.Close()
			return nil, fmt.Errorf("the proxy responded %s", response.Status)
		}
		return connection, nil
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (p *proxy) outcomes() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []string
	for _, a := range p.attempts {
		list = append(list, a.Client+" "+a.Target+" "+a.Outcome)
	}
	return list
}

func get(client *http.Client, address string) (string, error) {
	response, err := client.Get(address)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.Status + " " + string(text), err
}

func newIssuer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	issuer := httptest.NewTLSServer(handler)
	t.Cleanup(issuer.Close)
	return issuer
}

// TestNameThatMoves checks that an address is checked at each connection: a name may resolve to a public address first, and to a
// private one later.
func TestNameThatMoves(t *testing.T) {
	issuer := newIssuer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "keys") })
	p := newProxy(t, nil)
	p.network["20.50.2.1:443"], p.network["10.0.0.1:443"] = issuer.Listener.Addr().String(), issuer.Listener.Addr().String()
	client := p.client(t, "plane-a", issuer)
	p.set("login.example.com", "20.50.2.1")
	if text, err := get(client, "https://login.example.com/keys"); err != nil || text != "200 OK keys" {
		t.Fatalf("%s, %v", text, err)
	}
	client.CloseIdleConnections()
	p.set("login.example.com", "10.0.0.1")
	if text, err := get(client, "https://login.example.com/keys"); err == nil {
		t.Errorf("the private address responded %s", text)
	}
	if len(p.dialed) != 1 {
		t.Errorf("connected to %v", p.dialed)
	}
	want := []string{"plane-a login.example.com:443 allowed", "plane-a login.example.com:443 address"}
	if got := p.outcomes(); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("outcomes %v", got)
	}
	if n := testutil.ToFloat64(p.metrics.connects.WithLabelValues(OutcomeAddress)); n != 1 {
		t.Errorf("%v refusals are counted", n)
	}
}

// TestRedirectsStayInPolicy checks that the target of a redirect gets the same decision, and that a public one is reached.
func TestRedirectsStayInPolicy(t *testing.T) {
	var location string
	issuer := newIssuer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			_, _ = io.WriteString(w, "keys")
			return
		}
		http.Redirect(w, r, location, http.StatusFound)
	})
	p := newProxy(t, nil)
	server := issuer.Listener.Addr().String()
	for _, address := range []string{"20.50.2.1:443", "20.50.2.2:443", "10.0.0.1:443", "127.0.0.1:443", "169.254.169.254:80", "20.50.2.2:8443"} {
		p.network[address] = server
	}
	p.set("login.example.com", "20.50.2.1")
	p.set("public.example.com", "20.50.2.2")
	p.set("internal.example.com", "10.0.0.1")
	for to, reached := range map[string]bool{
		"https://public.example.com/keys": true, "https://internal.example.com/keys": false, "https://127.0.0.1/keys": false, "https://[::1]/keys": false,
		"http://169.254.169.254/keys": false, "https://public.example.com:8443/keys": false, "http://public.example.com/keys": false,
	} {
		location = to
		text, err := get(p.client(t, "plane-a", issuer), "https://login.example.com/discovery")
		if (err == nil && text == "200 OK keys") != reached {
			t.Errorf("a redirect to %s: %s, %v", to, text, err)
		}
	}
	for _, address := range p.dialed {
		if a := address.String(); a != "20.50.2.1:443" && a != "20.50.2.2:443" {
			t.Errorf("connected to %s", a)
		}
	}
}

// TestForbiddenAddresses checks that no range that is not public is connected to, by address and by name.
func TestForbiddenAddresses(t *testing.T) {
	p := newProxy(t, nil)
	credentials := p.credentials(t, "plane-a")
	for _, address := range []string{
		"127.0.0.1", "127.8.8.8", "::1", "169.254.169.254", "169.254.1.1", "fe80::1", "168.63.129.16", "10.0.0.1", "172.16.5.4", "192.168.0.1", "fd00:ec2::254",
		"100.64.0.1", "224.0.0.1", "ff02::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1",
		"64:ff9b:1::a00:1", "2002:a9fe:a9fe::1", "2001::1", "198.18.0.1", "192.0.2.1", "255.255.255.255",
	} {
		p.set("name.example.com", address)
		for _, target := range []string{net.JoinHostPort(address, "443"), "name.example.com:443"} {
			if _, response := p.connect(t, credentials, target); response.StatusCode != http.StatusForbidden {
				t.Errorf("CONNECT %s to %s: %s", target, address, response.Status)
			}
		}
	}
	if len(p.dialed) > 0 {
		t.Errorf("connected to %v", p.dialed)
	}
}

func TestStatuses(t *testing.T) {
	p := newProxy(t, nil)
	credentials := p.credentials(t, "plane-a")
	p.set("away.example.com", "20.50.2.9")
	for target, want := range map[string]int{"away.example.com:443": http.StatusBadGateway, "unknown.example.com:443": http.StatusBadGateway,
		"away.example.com:80": http.StatusForbidden, "away.example.com": http.StatusForbidden} {
		if _, response := p.connect(t, credentials, target); response.StatusCode != want {
			t.Errorf("CONNECT %s: %s, want %d", target, response.Status, want)
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: credentials}}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/", "/http://10.0.0.1/"} {
		if text, err := get(client, p.url.String()+path); err != nil || !strings.HasPrefix(text, "405") {
			t.Errorf("GET %s: %s, %v", path, text, err)
		}
	}
}

// TestInvalidClients checks that only certificates of the authority are accepted.
func TestInvalidClients(t *testing.T) {
	p := newProxy(t, nil)
	valid := p.credentials(t, "plane-a")
	other := must.Get(kubeapi.CreateEgressAuthority(t.TempDir()))(t)
	files := must.Get(other.Issue(t.TempDir(), "plane-a"))(t)
	foreign := must.Get(tls.LoadX509KeyPair(files.CertificateFile, files.KeyFile))(t)
	server := must.Get(tls.LoadX509KeyPair(p.authority.CertificateFile(), p.authority.KeyFile()))(t)
	for reason, certificates := range map[string][]tls.Certificate{"no certificate": nil, "another authority": {foreign}, "the certificate of the proxy": {server}} {
		config := valid.Clone()
		config.Certificates = certificates
		connection, err := tls.Dial("tcp", p.url.Host, config)
		if err == nil { // TLS 1.3 reports the refusal with the first read
			_, _ = io.WriteString(connection, "CONNECT a.example.com:443 HTTP/1.1\r\nHost: a\r\n\r\n")
			_, err = connection.Read(make([]byte, 1))
			_ = connection.Close()
		}
		if err == nil {
			t.Errorf("a client with %s is accepted", reason)
		}
	}
	if got := p.outcomes(); len(got) > 0 {
		t.Errorf("decided %v", got)
	}
}

// echo is a server that returns what it reads.
func echo(t *testing.T) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var open sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	open.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				_, _ = io.Copy(connection, connection)
				_ = connection.Close()
			})
		}
	})
	return listener.Addr().String()
}

func TestTunnelsPerClient(t *testing.T) {
	p := newProxy(t, func(o *Options) { o.Limits.TunnelsPerClient, o.Limits.Tunnels = 2, 3 })
	p.network["20.50.2.1:443"] = echo(t)
	p.set("login.example.com", "20.50.2.1")
	a, b := p.credentials(t, "plane-a"), p.credentials(t, "plane-b")
	status := func(config *tls.Config) (*tls.Conn, int) {
		connection, response := p.connect(t, config, "login.example.com:443")
		return connection, response.StatusCode
	}
	first, _ := status(a)
	if _, code := status(a); code != http.StatusOK {
		t.Fatalf("the second tunnel: %d", code)
	}
	if _, code := status(a); code != http.StatusTooManyRequests {
		t.Errorf("the third tunnel of a control plane: %d", code)
	}
	if _, code := status(b); code != http.StatusOK {
		t.Errorf("the tunnel of another control plane: %d", code)
	}
	if _, code := status(b); code != http.StatusTooManyRequests {
		t.Errorf("more tunnels than the limit of all: %d", code)
	}
	must.Do(t, first.CloseWrite())
	if text, err := io.ReadAll(first); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
	// The slot is free when the proxy has ended the tunnel, which closes the client's connection only a moment earlier.
	eventually.Soon(t, "the slot of an ended tunnel is free", func() error {
		if _, code := status(a); code != http.StatusOK {
			return fmt.Errorf("the status of a CONNECT is %d", code)
		}
		return nil
	})
}

// pipes is a listener of connections in memory. In a bubble of synctest their deadlines are those of the bubble's clock.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.dialed <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.dialed:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dialEcho returns a connection in memory to a server that returns what it reads.
func dialEcho(context.Context, netip.AddrPort) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		_, _ = io.Copy(server, server)
		_ = server.Close()
	}()
	return client, nil
}

// TestTunnelLimits checks why and when the proxy ends a tunnel whose client sends some bytes and then waits.
func TestTunnelLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		send   int
		end    string
		after  time.Duration
	}{
		"Idle":     {Limits{TunnelsPerClient: 1, Tunnels: 1, Lifetime: time.Hour, Idle: time.Minute, Bytes: 1 << 20}, 10, endIdle, time.Minute},
		"Lifetime": {Limits{TunnelsPerClient: 1, Tunnels: 1, Lifetime: time.Minute, Idle: time.Hour, Bytes: 1 << 20}, 10, endLifetime, time.Minute},
		"Bytes":    {Limits{TunnelsPerClient: 1, Tunnels: 1, Lifetime: time.Hour, Idle: time.Hour, Bytes: 1000}, 2000, endBytes, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := newPipes()
				p := serveProxy(t, listener, listener.dial, func(o *Options) { o.Limits, o.Dial = c.limits, dialEcho })
				p.set("login.example.com", "20.50.2.1")
				began := time.Now()
				connection, response := p.connect(t, p.credentials(t, "plane-a"), "login.example.com:443")
				if response.StatusCode != http.StatusOK {
					t.Fatal(response.Status)
				}
				must.Get(connection.Write(make([]byte, c.send)))(t)
				got, _ := io.Copy(io.Discard, connection) // until the proxy closes the tunnel
				if c.end != endBytes && got != int64(c.send) || c.end == endBytes && got > c.limits.Bytes {
					t.Errorf("%d bytes returned", got)
				}
				if took := time.Since(began); took != c.after {
					t.Errorf("the tunnel ended after %s instead of %s", took, c.after)
				}
				p.Close() // waits for the tunnel
				if n := testutil.ToFloat64(p.metrics.ended.WithLabelValues(c.end)); n != 1 {
					t.Errorf("%v tunnels ended because of %s", n, c.end)
				}
			})
		})
	}
}

// TestCloseEndsTunnels checks that no tunnel outlives the server, and that none begins afterwards.
func TestCloseEndsTunnels(t *testing.T) {
	p := newProxy(t, nil)
	p.network["20.50.2.1:443"] = echo(t)
	p.set("login.example.com", "20.50.2.1")
	credentials := p.credentials(t, "plane-a")
	connection, response := p.connect(t, credentials, "login.example.com:443")
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
	p.Close()
	if _, err := connection.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel is open after Close")
	}
	if n := testutil.ToFloat64(p.metrics.ended.WithLabelValues(endShutdown)); n != 1 {
		t.Errorf("%v tunnels ended by Close", n)
	}
	if _, response := p.connect(t, credentials, "login.example.com:443"); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a CONNECT after Close: %s", response.Status)
	}
}
