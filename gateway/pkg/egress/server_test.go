package egress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/clocktest"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/proxyheadertest"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// upstreamVariable makes the test's program an upstream server.
const upstreamVariable = "GATEWAY_EGRESS_TEST_UPSTREAM"

func TestMain(m *testing.M) {
	if os.Getenv(upstreamVariable) != "" {
		runUpstream()
	}
	os.Exit(leaktest.Check(m.Run()))
}

// runUpstream serves an echo on a port of its own, prints the address, and never returns.
func runUpstream() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go func() { _, _ = io.Copy(connection, connection) }()
	}
}

// links is a source of documents that a test changes.
type links struct {
	*database.DB
	t         testing.TB
	admin     *intenttest.Admin
	mu        sync.Mutex
	documents map[string]database.EgressLinkDocument
	changed   chan struct{}
}

// set stores a document, with a signed intent unless it is removed.
func (l *links) set(d database.EgressLinkDocument) {
	l.t.Helper()
	if d.RemovedTime == nil {
		d = l.admin.EgressLink(l.t, d)
	}
	l.store(d)
}

func (l *links) store(d database.EgressLinkDocument) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.documents[d.LinkID] = d
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *links) EachEgressLink(_ context.Context, each func(*database.Item[database.EgressLinkDocument]) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.documents {
		if err := each(&database.Item[database.EgressLinkDocument]{Value: d}); err != nil {
			return err
		}
	}
	return nil
}

// TailEgressLinks returns after a change, so that the registry's run is started again by the test's loop.
func (l *links) TailEgressLinks(ctx context.Context, _ time.Time, options database.FeedOptions, _ database.Handler) error {
	l.mu.Lock()
	changed := l.changed
	l.mu.Unlock()
	options.Read()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
		return nil
	}
}

// records returns the access records with a message.
func (g *gateway) records(message string) []map[string]any {
	g.t.Helper()
	var all []map[string]any
	for line := range strings.Lines(g.log.String()) {
		var record map[string]any
		must.Do(g.t, json.Unmarshal([]byte(line), &record))
		if record["msg"] == message {
			all = append(all, record)
		}
	}
	return all
}

// gateway is a running gateway with a network of its own: host names have addresses, and addresses lead to listeners on loopback.
type gateway struct {
	t         testing.TB
	links     *links
	log       *logtest.Log
	metrics   *prometheus.Registry
	addresses map[egress.Protocol]string
	// clock stands unless the test advances it.
	clock clocktest.Clock
	// closed is closed when the gateway accepts no more connections for the host in TLS.
	closed chan struct{}
	// stop ends the context of Run, and wait waits for its end.
	stop, wait func()

	mu      sync.Mutex
	names   map[string][]string
	network map[string]string
}

// notedListener closes a channel when it is closed.
type notedListener struct {
	net.Listener
	note func()
}

// Close implements net.Listener.
func (l notedListener) Close() error {
	defer l.note()
	return l.Listener.Close()
}

// startGateway starts a gateway with limits that nobody reaches, except those that are given. change changes the options of its registry; nil changes nothing.
func startGateway(t testing.TB, limits egress.Limits, change func(*egress.RegistryOptions)) *gateway {
	t.Helper()
	listeners := map[egress.Protocol]net.Listener{}
	for _, protocol := range egress.Protocols() {
		listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		listeners[protocol] = listener
	}
	return startAt(t, listeners, limits, change)
}

// startAt is start with existing listeners.
func startAt(t testing.TB, listeners map[egress.Protocol]net.Listener, limits egress.Limits, change func(*egress.RegistryOptions)) *gateway {
	t.Helper()
	g := &gateway{t: t, clock: clocktest.New(), closed: make(chan struct{}), log: &logtest.Log{}, metrics: prometheus.NewRegistry(), addresses: map[egress.Protocol]string{}, names: map[string][]string{}, network: map[string]string{},
		links: &links{t: t, admin: intenttest.New(t), documents: map[string]database.EgressLinkDocument{}, changed: make(chan struct{})}}
	logger := slog.New(slog.NewJSONHandler(g.log, nil))
	p := must.Get(egress.NewPolicy([]string{"quay.example", "private.example", "unknown.example", "closed.example"}, []uint16{443, 8443}))(t)
	g.links.set(database.EgressLinkDocument{LinkID: "7", Generation: 1, ClusterUID: "uid-a", ResourceID: "/subscriptions/s/clusters/a", Hosts: []string{"registry-a.example"}})
	g.links.set(database.EgressLinkDocument{LinkID: "8", Generation: 1, ClusterUID: "uid-b", ResourceID: "/subscriptions/s/clusters/b"})
	options := egress.RegistryOptions{Source: g.links, Intents: g.links.admin.Verifier, Keys: g.links.admin.Signer.Ring, Policy: p, ConnectionsPerLink: 5000, NewPerSecond: 1_000_000, Log: logger, Metrics: g.metrics}
	// Somebody has written the document of another link and has changed the cluster.
	forged := g.links.admin.EgressLink(t, database.EgressLinkDocument{LinkID: "10", Generation: 1, ClusterUID: "uid-a", ResourceID: "/subscriptions/s/clusters/a"})
	forged.ClusterUID = "uid-b"
	g.links.store(forged)
	if change != nil {
		change(&options)
	}
	registry := egress.NewRegistry(options)
	if limits.Connections == 0 {
		limits.Connections = 10000
	}
	if limits.Handshake == 0 {
		limits.Handshake = time.Hour
	}
	if limits.Idle == 0 {
		limits.Idle = time.Hour
	}
	s := egress.NewServer(egress.ServerOptions{Links: registry, Limits: limits, Clock: g.clock, Metrics: g.metrics, Log: logger, Dialer: publicaddress.Dialer{Lookup: g.lookup, Dial: g.dial}})
	for protocol, listener := range listeners {
		g.addresses[protocol] = listener.Addr().String()
	}
	listeners[egress.SNI] = notedListener{listeners[egress.SNI], sync.OnceFunc(func() { close(g.closed) })}
	following, endFollowing := context.WithCancel(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for following.Err() == nil {
			registry.Run(following)
		}
	})
	ended := make(chan error, 1)
	wg.Go(func() { ended <- s.Run(ctx, listeners) })
	g.stop = cancel
	g.wait = sync.OnceFunc(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		endFollowing()
		wg.Wait()
	})
	t.Cleanup(func() { cancel(); g.wait() })
	// In a bubble, a test has no deadline.
	eventually.Before(t.Context(), t, "the links are known", func() error { return registry.Ready(context.Background()) })
	return g
}

func (g *gateway) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []netip.Addr
	for _, address := range g.names[host] {
		all = append(all, netip.MustParseAddr(address))
	}
	if len(all) == 0 {
		return nil, errors.New("no such host")
	}
	return all, nil
}

func (g *gateway) dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	g.mu.Lock()
	target, known := g.network[address.String()]
	g.mu.Unlock()
	if !known {
		return nil, errors.New("no route to host")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", target)
}

// serve makes a host lead to a listener on loopback.
func (g *gateway) serve(host, address string, port int, target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names[host] = []string{address}
	g.network[netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)).String()] = target
}

// connect connects to the gateway as the private endpoint of a link.
func (g *gateway) connect(protocol egress.Protocol, id uint32) (net.Conn, error) {
	connection, err := net.Dial("tcp", g.addresses[protocol])
	if err == nil {
		g.t.Cleanup(func() { _ = connection.Close() })
		_, err = connection.Write(proxyheadertest.Link(g.t, id))
	}
	return connection, err
}

// tunnel opens a tunnel with CONNECT.
func (g *gateway) tunnel(id uint32, target string) (net.Conn, *http.Response) {
	g.t.Helper()
	connection := must.Get(g.connect(egress.Connect, id))(g.t)
	must.Get(fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target))(g.t)
	reader := bufio.NewReader(connection)
	response := must.Get(http.ReadResponse(reader, &http.Request{Method: http.MethodConnect}))(g.t)
	if response.StatusCode == http.StatusOK && reader.Buffered() > 0 {
		g.t.Fatal("bytes follow the response")
	}
	return connection, response
}

// open opens a tunnel, which must succeed.
func (g *gateway) open(id uint32, target string) net.Conn {
	g.t.Helper()
	connection, response := g.tunnel(id, target)
	if response.StatusCode != http.StatusOK {
		g.t.Fatal(response.Status)
	}
	return connection
}

// exchange sends a byte through a connection to an echo and reads it.
func exchange(t testing.TB, connection net.Conn) {
	t.Helper()
	must.Get(connection.Write([]byte("x")))(t)
	must.Get(io.ReadFull(connection, make([]byte, 1)))(t)
}

// awaitRecords waits for the number of records with a message, and returns them.
func (g *gateway) awaitRecords(message string, n int) []map[string]any {
	g.t.Helper()
	var found []map[string]any
	eventually.Soon(g.t, fmt.Sprintf("%d records %q", n, message), func() error {
		if found = g.records(message); len(found) != n {
			return fmt.Errorf("there are %d", len(found))
		}
		return nil
	})
	return found
}

func (g *gateway) counted(protocol egress.Protocol, outcome egress.Outcome) float64 {
	g.t.Helper()
	families := must.Get(g.metrics.Gather())(g.t)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == "gateway_egress_connections_total" && labels["protocol"] == string(protocol) && labels["outcome"] == string(outcome) {
				return m.GetCounter().GetValue()
			}
		}
	}
	g.t.Fatalf("no metric of %s %s", protocol, outcome)
	return 0
}

// website is a TLS server for the names of the tests, with the configuration of its clients.
func website(t testing.TB) (target string, client *tls.Config) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%s at %s", r.URL.Path, r.Host) }))
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.Listener.Addr().String(), &tls.Config{RootCAs: roots}
}

// echo returns the address of a server that returns what it receives, until the client has ended its direction.
func echo(t testing.TB) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				_, _ = io.Copy(connection, connection)
				_ = connection.Close()
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return listener.Addr().String()
}

// get requests a page with a client whose connections begin with the PROXY header of a link.
func (g *gateway) get(protocol egress.Protocol, id uint32, target string, config *tls.Config) (string, error) {
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return g.connect(protocol, id) }}
	if protocol == egress.Connect {
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "gateway.example"})
	}
	response, err := (&http.Client{Transport: transport}).Get(target)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// TestHTTPSClientsReachPermittedHosts sends requests of a real HTTPS client through both protocols. TLS is between the client and the host, and
// each connection has two access records.
func TestHTTPSClientsReachPermittedHosts(t *testing.T) {
	for _, protocol := range egress.Protocols() {
		t.Run(string(protocol), func(t *testing.T) {
			g := startGateway(t, egress.Limits{}, nil)
			target, config := website(t)
			config.ServerName = "" // that of the URL
			// The certificate of httptest is for example.com.
			g.links.set(database.EgressLinkDocument{LinkID: "9", Generation: 1, ClusterUID: "uid-c", ResourceID: "/subscriptions/s/clusters/c", Hosts: []string{"www.example.com"}})
			g.serve("www.example.com", "20.50.2.1", 443, target)
			eventually.Soon(t, "the new link is known", func() error {
				body, err := g.get(protocol, 9, "https://WWW.example.com/page", config)
				if err == nil && body != "/page at WWW.example.com" {
					t.Errorf("the client got %q", body)
				}
				return err
			})

			opened, closed := g.awaitRecords("egress connection opened", 1)[0], g.awaitRecords("egress connection closed", 1)[0]
			for _, record := range []map[string]any{opened, closed} {
				want := map[string]any{logkey.Protocol: string(protocol), logkey.Link: "9", logkey.ClusterUID: "uid-c", logkey.ResourceID: "/subscriptions/s/clusters/c", logkey.Remote: proxyheadertest.Source,
					logkey.Host: "www.example.com", logkey.Port: 443.0, logkey.Connection: opened[logkey.Connection]}
				for key, value := range want {
					if record[key] != value {
						t.Errorf("%s: %s is %v, want %v", record["msg"], key, record[key], value)
					}
				}
			}
			if closed[logkey.Reason] != string(egress.EndClosed) || closed[logkey.Sent].(float64) < 500 || closed[logkey.Received].(float64) < 500 {
				t.Errorf("the connection ended with %v", closed)
			}
			if _, err := g.get(protocol, 8, "https://www.example.com/page", config); err == nil {
				t.Error("another cluster reaches a host of this one")
			}
		})
	}
}

// TestRefusals sends what the gateway refuses. Nothing reaches a host.
func TestRefusals(t *testing.T) {
	g := startGateway(t, egress.Limits{}, nil)
	target, config := website(t)
	reached := 0
	counting := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			connection, err := counting.Accept()
			if err != nil {
				return
			}
			reached++
			_ = connection.Close()
		}
	}()
	for _, host := range []string{"evil.example", "registry-a.example", "private.example", "127.0.0.1"} {
		g.serve(host, "20.50.2.1", 443, counting.Addr().String())
	}
	g.names["private.example"] = []string{"10.0.0.1", "169.254.169.254", "::1", "168.63.129.16"}
	g.names["closed.example"] = []string{"20.50.2.9"}
	_ = target
	for name, tc := range map[string]struct {
		link    uint32
		host    string
		outcome egress.Outcome
		alert   string
		ech     bool
	}{
		"encrypted hello":         {7, "quay.example", egress.Outcome(egress.EncryptedHello), "access denied", true},
		"another host":            {7, "evil.example", egress.Outcome(egress.Host), "access denied", false},
		"host of another cluster": {8, "registry-a.example", egress.Outcome(egress.Host), "access denied", false},
		"unknown link":            {99, "quay.example", egress.Outcome(egress.UnknownLink), "access denied", false},
		"unverified link":         {10, "quay.example", egress.UnverifiedLink, "access denied", false},
		"no name":                 {7, "", egress.Outcome(egress.MissingName), "access denied", false},
		"address":                 {7, "127.0.0.1", egress.Outcome(egress.MissingName), "access denied", false},
		"private addresses only":  {7, "private.example", egress.Address, "access denied", false},
		"unresolved":              {7, "unknown.example", egress.Unresolved, "internal error", false},
		"unreachable":             {7, "closed.example", egress.Unreachable, "internal error", false},
	} {
		before := g.counted(egress.SNI, tc.outcome)
		connection := must.Get(g.connect(egress.SNI, tc.link))(t)
		client := config.Clone()
		client.ServerName, client.InsecureSkipVerify = tc.host, true
		if tc.ech {
			client.MinVersion, client.EncryptedClientHelloConfigList = tls.VersionTLS13, egress.ECHConfigList(t, "quay.example")
		}
		if err := tls.Client(connection, client).Handshake(); err == nil || !strings.Contains(err.Error(), tc.alert) {
			t.Errorf("SNI, %s: %v, want the alert %q", name, err, tc.alert)
		}
		if got := g.counted(egress.SNI, tc.outcome); got != before+1 {
			t.Errorf("SNI, %s: %v connections with the outcome %s, want %v", name, got, tc.outcome, before+1)
		}
	}
	for name, tc := range map[string]struct {
		link    uint32
		target  string
		status  int
		outcome egress.Outcome
	}{
		"another host":   {7, "evil.example:443", 403, egress.Outcome(egress.Host)},
		"unknown link":   {99, "quay.example:443", 403, egress.Outcome(egress.UnknownLink)},
		"unverified":     {10, "quay.example:443", 403, egress.UnverifiedLink},
		"another port":   {7, "quay.example:22", 403, egress.Outcome(egress.Port)},
		"address":        {7, "127.0.0.1:443", 403, egress.Outcome(egress.InvalidName)},
		"IPv6":           {7, "[::1]:443", 403, egress.Outcome(egress.InvalidName)},
		"octal address":  {7, "0177.0.0.1:443", 403, egress.Outcome(egress.InvalidName)},
		"private":        {7, "private.example:443", 403, egress.Address},
		"unresolved":     {7, "unknown.example:443", 502, egress.Unresolved},
		"unreachable":    {7, "closed.example:443", 502, egress.Unreachable},
		"no port":        {7, "quay.example", 400, egress.Malformed},
		"with a request": {7, "quay.example:443 HTTP/1.1\r\nContent-Length: 5", 400, egress.Malformed},
	} {
		before := g.counted(egress.Connect, tc.outcome)
		_, response := g.tunnel(tc.link, tc.target)
		if response.StatusCode != tc.status {
			t.Errorf("CONNECT, %s: %s, want %d", name, response.Status, tc.status)
		}
		if body, _ := io.ReadAll(response.Body); bytes.Contains(body, []byte("10.0.0.1")) || bytes.Contains(body, []byte("20.50.2.9")) {
			t.Errorf("CONNECT, %s: the response has an address: %q", name, body)
		}
		if got := g.counted(egress.Connect, tc.outcome); got != before+1 {
			t.Errorf("CONNECT, %s: %v connections with the outcome %s, want %v", name, got, tc.outcome, before+1)
		}
	}
	for name, tc := range map[string]struct {
		text    []byte
		outcome egress.Outcome
	}{
		"no header":               {[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00"), egress.NoLink},
		"version 1":               {[]byte("PROXY TCP4 10.0.0.4 10.0.0.9 41000 443\r\n"), egress.NoLink},
		"without a link":          {[]byte("\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c\x0a\x00\x00\x04\x0a\x00\x00\x09\x01\xbb\x01\xbb"), egress.NoLink},
		"health check of a proxy": {[]byte("\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x20\x00\x00\x00"), egress.Local},
		"HTTP in place of TLS":    {append(proxyheadertest.Link(t, 7), "GET / HTTP/1.1\r\n\r\n"...), egress.Malformed},
		"two headers":             {append(proxyheadertest.Link(t, 7), proxyheadertest.Link(t, 8)...), egress.Malformed},
		"large hello":             {append(proxyheadertest.Link(t, 7), bytes.Repeat([]byte("\x16\x03\x01\x00\x01\x01"), 4000)...), egress.Malformed},
	} {
		before := g.counted(egress.SNI, tc.outcome)
		connection := must.Get(net.Dial("tcp", g.addresses[egress.SNI]))(t)
		must.Get(connection.Write(tc.text))(t)
		_, _ = io.Copy(io.Discard, connection) // until the gateway closes it
		_ = connection.Close()
		eventually.Soon(t, name+" is counted", func() error {
			if got := g.counted(egress.SNI, tc.outcome); got != before+1 {
				return fmt.Errorf("%v connections with the outcome %s, want %v", got, tc.outcome, before+1)
			}
			return nil
		})
	}
	must.Do(t, counting.Close())
	<-accepted
	if reached > 0 {
		t.Errorf("%d connections reached a host", reached)
	}
}

// pipes is a listener for connections within the process, whose time limits are on the clock of a bubble.
type pipes struct {
	net.Listener
	connections chan net.Conn
	closed      chan struct{}
	close       func()
}

func newPipes() *pipes {
	p := &pipes{connections: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.connections:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.close()
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// connect returns the client's end of a new connection.
func (p *pipes) connect() net.Conn {
	client, accepted := net.Pipe()
	p.connections <- accepted
	return client
}

// TestSlowClientsAreClosed opens connections that send one byte after the other, and never enough.
func TestSlowClientsAreClosed(t *testing.T) {
	const limit = 5 * time.Second
	for name, begin := range map[string][]byte{"header": nil, "hello": proxyheadertest.Link(t, 7)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients := newPipes()
				g := startAt(t, map[egress.Protocol]net.Listener{egress.SNI: clients}, egress.Limits{Handshake: limit}, nil)
				text := proxyheadertest.Link(t, 7)
				if begin != nil {
					text = append([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), make([]byte, 400)...)
				}
				connection, opened := clients.connect(), time.Now()
				var closed time.Duration
				var reading sync.WaitGroup
				reading.Go(func() {
					_, _ = io.Copy(io.Discard, connection)
					closed = time.Since(opened)
				})
				var err error
				if begin != nil {
					_, err = connection.Write(begin)
				}
				for i := 0; i < len(text)-1 && err == nil; i++ {
					time.Sleep(limit / 20)
					_, err = connection.Write(text[i : i+1])
				}
				reading.Wait()
				_ = connection.Close()
				if closed != limit {
					t.Errorf("the connection was closed after %s, want %s", closed, limit)
				}
				if got := g.counted(egress.SNI, egress.Timeout); got != 1 {
					t.Errorf("%v connections have timed out", got)
				}
			})
		})
	}
}

// TestEndOfOneDirectionIsForwarded ends the client's direction. The host reads everything and responds after that.
func TestEndOfOneDirectionIsForwarded(t *testing.T) {
	g := startGateway(t, egress.Limits{}, nil)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	served := make(chan error, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		defer func() { _ = connection.Close() }()
		request, err := io.ReadAll(connection)
		if err == nil {
			_, err = fmt.Fprintf(connection, "received %d", len(request))
		}
		served <- err
	}()
	t.Cleanup(func() { _ = listener.Close() })
	g.serve("quay.example", "20.50.2.1", 443, listener.Addr().String())
	connection := g.open(7, "quay.example:443")
	must.Get(connection.Write(make([]byte, 100_000)))(t)
	must.Do(t, connection.(*net.TCPConn).CloseWrite())
	if got, err := io.ReadAll(connection); err != nil || string(got) != "received 100000" {
		t.Errorf("the client read %q, %v", got, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	record := g.awaitRecords("egress connection closed", 1)[0]
	if record[logkey.Sent] != 100000.0 || record[logkey.Received] != 15.0 || record[logkey.Reason] != string(egress.EndClosed) {
		t.Errorf("the access record is %v", record)
	}
}

// TestChangesCloseConnections removes a link, and a host of another one. Their connections are closed with the reason, and those beside them stay.
func TestChangesCloseConnections(t *testing.T) {
	g := startGateway(t, egress.Limits{}, nil)
	target := echo(t)
	g.serve("quay.example", "20.50.2.1", 443, target)
	g.serve("registry-a.example", "20.50.2.2", 443, target)
	stays, host, removed := g.open(7, "quay.example:443"), g.open(7, "registry-a.example:443"), g.open(8, "quay.example:443")
	g.awaitRecords("egress connection opened", 3)
	now := time.Now()
	g.links.set(database.EgressLinkDocument{LinkID: "8", Generation: 1, ClusterUID: "uid-b", RemovedTime: &now})
	g.links.set(database.EgressLinkDocument{LinkID: "7", Generation: 1, ClusterUID: "uid-a"})
	for _, connection := range []net.Conn{host, removed} {
		if n, err := connection.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes", n)
		}
	}
	reasons := map[any]any{}
	for _, record := range g.awaitRecords("egress connection closed", 2) {
		reasons[record[logkey.Link]] = record[logkey.Reason]
	}
	if diff := cmp.Diff(map[any]any{"7": string(egress.EndHost), "8": string(egress.EndRemoved)}, reasons); diff != "" {
		t.Error(diff)
	}
	exchange(t, stays)
}

// TestConnectionsFollowDescriptors starts a gateway whose process may open 512 files, three quarters of which suffice for 192 connections.
func TestConnectionsFollowDescriptors(t *testing.T) {
	var before syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	few := before
	few.Cur = 512
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	g := startGateway(t, egress.Limits{Connections: 20_000}, nil)
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) // the clients and the host are in this process
	g.serve("quay.example", "20.50.2.1", 443, echo(t))
	for range 192 {
		g.open(7, "quay.example:443")
	}
	over, err := g.connect(egress.Connect, 8)
	if err == nil {
		_, err = over.Read(make([]byte, 1))
	}
	if err == nil || g.counted(egress.Connect, egress.Busy) != 1 {
		t.Errorf("beyond the limit: %v, busy %v", err, g.counted(egress.Connect, egress.Busy))
	}
}

// TestLimits reaches the limits of a link and of the gateway.
func TestLimits(t *testing.T) {
	g := startGateway(t, egress.Limits{Connections: 3}, func(o *egress.RegistryOptions) { o.ConnectionsPerLink = 2 })
	g.serve("quay.example", "20.50.2.1", 443, echo(t))
	for range 2 {
		g.open(7, "quay.example:443")
	}
	if _, response := g.tunnel(7, "quay.example:443"); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a third connection of a link: %s", response.Status)
	}
	var last net.Conn
	eventually.Soon(t, "another link has a connection", func() error {
		connection, err := g.connect(egress.Connect, 8)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(connection, "CONNECT quay.example:443 HTTP/1.1\r\n\r\n"); err != nil {
			return err
		}
		last = connection
		_, err = http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: http.MethodConnect})
		return err
	})

	over, err := g.connect(egress.Connect, 8)
	if err == nil {
		_, err = over.Read(make([]byte, 1))
	}
	if err == nil || g.counted(egress.Connect, egress.Busy) == 0 || g.counted(egress.Connect, egress.BusyLink) != 1 {
		t.Errorf("beyond the limit of all: %v, busy %v, busy link %v", err, g.counted(egress.Connect, egress.Busy), g.counted(egress.Connect, egress.BusyLink))
	}
	_ = last.Close()
}

// TestRateOfNewConnections opens more connections of a link than its rate permits. Open ones and other links are not affected.
func TestRateOfNewConnections(t *testing.T) {
	now := time.Now() // the link saves up nothing while the clock stands
	g := startGateway(t, egress.Limits{}, func(o *egress.RegistryOptions) { o.NewPerSecond, o.Now = 1, func() time.Time { return now } })
	g.serve("quay.example", "20.50.2.1", 443, echo(t))
	first := g.open(7, "quay.example:443")
	refused := 0
	for range 10 {
		if _, response := g.tunnel(7, "quay.example:443"); response.StatusCode == http.StatusTooManyRequests {
			refused++
		}
	}
	if counted := g.counted(egress.Connect, egress.RateLink); refused != 1 || counted != 1 {
		t.Errorf("of 11 connections, %d were refused, and %v are counted", refused, counted)
	}
	exchange(t, first)
	if _, response := g.tunnel(8, "quay.example:443"); response.StatusCode != http.StatusOK {
		t.Errorf("another link: %s", response.Status)
	}
}

// TestStoppedUpstream stops the process of a host with a signal. Its connection ends when it is idle, also while the client sends.
func TestStoppedUpstream(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), upstreamVariable+"=1")
	output := must.Get(child.StdoutPipe())(t)
	must.Do(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	address := must.Get(bufio.NewReader(output).ReadString('\n'))(t)
	g := startGateway(t, egress.Limits{Idle: 300 * time.Millisecond}, nil)
	g.serve("quay.example", "20.50.2.1", 443, strings.TrimSpace(address))
	must.Do(t, child.Process.Signal(syscall.SIGSTOP))
	// The kernel accepts the connection for the process. The idle time may begin and end whenever: it ends the connection in any case.
	connection := g.open(7, "quay.example:443")
	for {
		if _, err := connection.Write(make([]byte, 1<<20)); err != nil {
			break // the gateway has closed the connection
		}
	}
	if record := g.awaitRecords("egress connection closed", 1)[0]; record[logkey.Reason] != string(egress.EndIdle) {
		t.Errorf("the connection ended with %v", record)
	}
}

// TestDrain stops the gateway: it accepts no connection, an open one continues until its client ends it, and the others are closed at the end.
func TestDrain(t *testing.T) {
	const drain = time.Minute
	for name, tc := range map[string]struct {
		finish bool
		want   egress.End
	}{"client ends": {true, egress.EndClosed}, "time is over": {false, egress.EndStopped}} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, egress.Limits{Drain: drain}, nil)
			g.serve("quay.example", "20.50.2.1", 443, echo(t))
			connection := g.open(7, "quay.example:443")
			waiting := must.Get(g.connect(egress.SNI, 7))(t) // has not named a host
			g.stop()
			<-g.closed
			exchange(t, connection)
			if tc.finish {
				_, _ = connection.Close(), waiting.Close()
			} else {
				eventually.Soon(t, "the drain has begun", func() error {
					if !g.clock.HasWaiters() {
						return errors.New("nothing waits for its end")
					}
					return nil
				})
				g.clock.Step(drain)
			}
			g.wait()
			if record := g.awaitRecords("egress connection closed", 1)[0]; record[logkey.Reason] != string(tc.want) {
				t.Errorf("the connection ended with %v", record)
			}
		})
	}
}

// TestRefusalRecordsAreBounded refuses more connections of a link than have access records. All are counted, and another link has its own.
func TestRefusalRecordsAreBounded(t *testing.T) {
	g := startGateway(t, egress.Limits{}, nil)
	const many = 300
	for range many {
		if _, response := g.tunnel(7, "evil.example:443"); response.StatusCode != http.StatusForbidden {
			t.Fatal(response.Status)
		}
	}
	g.tunnel(8, "evil.example:443")
	records := g.records("egress connection refused")
	links := map[any]int{}
	for _, record := range records {
		links[record[logkey.Link]]++
	}
	if links["7"] != 100 || links["8"] != 1 || g.counted(egress.Connect, egress.Outcome(egress.Host)) != many+1 {
		t.Errorf("%d refused connections have %v records", many, links)
	}
}

// TestManyIdleConnectionsNeedLittleMemory opens 2,000 tunnels through the gateway. The bound covers the clients and the host too, which are in
// the same process. Only memory that is in use counts: what earlier tests have left is not, whenever the garbage collector frees it.
func TestManyIdleConnectionsNeedLittleMemory(t *testing.T) {
	const many, bound = 2000, 48 << 10
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 4*many+500 {
		t.Skipf("%d descriptors are too few", limit.Cur)
	}
	g := startGateway(t, egress.Limits{}, nil)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	accepted := make(chan net.Conn, many)
	go func() {
		defer close(accepted)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- connection
		}
	}()
	g.serve("quay.example", "20.50.2.1", 443, listener.Addr().String())
	memory := func() int64 {
		runtime.GC()
		runtime.GC() // pools keep their buffers for one collection
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := memory()
	var clients, hosts []net.Conn
	for range many {
		connection := g.open(7, "quay.example:443")
		host := <-accepted
		// Each tunnel has carried bytes in both directions before it is idle.
		must.Get(connection.Write(make([]byte, 8<<10)))(t)
		must.Get(io.ReadFull(host, make([]byte, 8<<10)))(t)
		clients, hosts = append(clients, connection), append(hosts, host)
	}
	perConnection := (memory() - before) / many
	t.Logf("%d bytes per connection", perConnection)
	if perConnection > bound {
		t.Errorf("%d connections need %d bytes each, want at most %d", many, perConnection, bound)
	}
	for _, connection := range slices.Concat(clients, hosts) {
		_ = connection.Close()
	}
	_ = listener.Close()
	if n := testutil.CollectAndCount(g.metrics, "gateway_egress_connections_total"); n != 40 {
		t.Errorf("the metric has %d series", n)
	}
}

// BenchmarkThroughput compares a gateway with a direct connection in the same run: the metric ratio is the time through the gateway divided by that
// of a direct connection.
func BenchmarkThroughput(b *testing.B) {
	g := startGateway(b, egress.Limits{}, nil)
	target := echo(b)
	g.serve("quay.example", "20.50.2.1", 443, target)
	const size = 1 << 20
	transfer := func(connection net.Conn) time.Duration {
		start := time.Now()
		sent := make(chan error, 1)
		go func() { _, err := connection.Write(make([]byte, size)); sent <- err }()
		must.Get(io.ReadFull(connection, make([]byte, size)))(b)
		must.Do(b, <-sent)
		return time.Since(start)
	}
	direct := must.Get(net.Dial("tcp", target))(b)
	defer func() { _ = direct.Close() }()
	through := g.open(7, "quay.example:443")
	var directTime, throughTime time.Duration
	b.SetBytes(size)
	for b.Loop() {
		throughTime += transfer(through)
		directTime += transfer(direct)
	}
	b.ReportMetric(float64(throughTime)/float64(directTime), "ratio")
}

// BenchmarkConnect compares the time of a new connection with one exchanged byte.
func BenchmarkConnect(b *testing.B) {
	g := startGateway(b, egress.Limits{}, nil)
	target := echo(b)
	g.serve("quay.example", "20.50.2.1", 443, target)
	var directTime, throughTime time.Duration
	for b.Loop() {
		start := time.Now()
		through := g.open(7, "quay.example:443")
		exchange(b, through)
		_ = through.Close()
		throughTime += time.Since(start)
		start = time.Now()
		direct := must.Get(net.Dial("tcp", target))(b)
		exchange(b, direct)
		_ = direct.Close()
		directTime += time.Since(start)
	}
	b.ReportMetric(float64(throughTime)/float64(directTime), "ratio")
}
