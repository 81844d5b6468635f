package agent_test

import (
	"bytes"
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
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/clocktest"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// shared is the management cluster of all tests.
var shared kubeapitest.Shared

func TestMain(m *testing.M) {
	if description := os.Getenv(processVariable); description != "" {
		fmt.Fprintln(os.Stderr, runAgent(description))
		os.Exit(1)
	}
	code := m.Run()
	shared.Close()
	os.Exit(leaktest.Check(code))
}

const (
	managementCluster = "mgmt-1"
	application       = "application-1"
	clusterID         = "0123456789abcdef"
)

// applications authenticates with tokens that are the IDs of applications.
type applications struct{}

func (applications) Authenticate(_ context.Context, r *http.Request) (authn.Caller, error) {
	id, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return authn.Caller{}, apierror.New(apierror.Unauthenticated, "The request has no token.")
	}
	return authn.Caller{AppID: id}, nil
}

func (applications) Ready(context.Context) error { return nil }

// addresses resolves the IDs of clusters.
type addresses struct{ sync.Map }

func (a *addresses) Address(_ context.Context, clusterID string) (string, error) {
	address, ok := a.Load(clusterID)
	if !ok {
		return "", agent.ErrUnknownCluster
	}
	return address.(string), nil
}

// region is a gateway with the agent of a management cluster.
type region struct {
	t      testing.TB
	log    *logtest.Log
	front  *httptest.Server
	change func(*tunnel.Options)
	// address is where the agent connects to; empty means front.
	address string
	mu      sync.Mutex
	servers []*tunnel.Server
	// next is the number of the next handshake: a load balancer forwards them in turn.
	next     atomic.Int64
	clusters addresses
	// stopAgent ends the agent.
	stopAgent func()
}

// newRegion starts a gateway with a number of replicas. Its agent runs after start.
func newRegion(t testing.TB, replicas int, change func(*tunnel.Options)) *region {
	t.Helper()
	r := &region{t: t, log: &logtest.Log{}, servers: make([]*tunnel.Server, replicas), change: change}
	for i := range replicas {
		r.startReplica(i)
	}
	r.front = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.replica(int(r.next.Add(1))%replicas).ServeHTTP(w, request)
	}))
	r.front.EnableHTTP2 = true
	r.front.StartTLS()
	t.Cleanup(func() {
		r.close()
		r.front.Close()
	})
	return r
}

// startReplica starts a replica of the gateway in the place of the previous one.
func (r *region) startReplica(i int) {
	options := tunnel.Options{Agents: map[string]string{managementCluster: application}, Authenticator: applications{}, Replicas: len(r.servers), Log: r.logger(), Metrics: prometheus.NewPedanticRegistry()}
	if r.change != nil {
		r.change(&options)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[i] = tunnel.NewServer(options)
}

func (r *region) replica(i int) *tunnel.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.servers[i]
}

// close ends all replicas.
func (r *region) close() {
	for i := range r.servers {
		r.replica(i).Close()
	}
}

func (r *region) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(r.log, nil)) }

// newAgent returns the agent of the management cluster, after changes of its options.
func newAgent(gateway *url.URL, authorities *x509.CertPool, clusters *addresses, log *slog.Logger, changes ...func(*agent.Options)) *agent.Agent {
	options := agent.Options{Gateway: gateway, ManagementCluster: managementCluster, Token: func(context.Context) (string, error) { return application, nil },
		TLS: func() *tls.Config { return &tls.Config{RootCAs: authorities} }, Resolver: clusters, Log: log, Metrics: prometheus.NewPedanticRegistry()}
	for _, change := range changes {
		change(&options)
	}
	return agent.New(options)
}

// start starts the agent, after changes of its options, and waits until it is connected to all replicas.
func (r *region) start(changes ...func(*agent.Options)) {
	r.t.Helper()
	gateway, err := url.Parse(r.front.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.address != "" {
		gateway.Host = r.address
	}
	authorities := x509.NewCertPool()
	authorities.AddCert(r.front.Certificate())
	a := newAgent(gateway, authorities, &r.clusters, r.logger(), changes...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run(ctx)
	}()
	r.stopAgent = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	r.t.Cleanup(r.stopAgent)
	eventually.Soon(r.t, "the agent is connected", func() error { return a.Ready(ctx) })
	for i := range r.servers {
		r.connected(i)
	}
}

// connected waits until connections through a replica reach the agent.
func (r *region) connected(replica int) {
	r.t.Helper()
	eventually.Soon(r.t, "the tunnel is connected", func() error {
		conn, err := r.replica(replica).Dial(r.t.Context(), managementCluster, "nothing")
		if err == nil {
			_ = conn.Close()
			return errors.New("a cluster is known that does not exist")
		}
		if !strings.Contains(err.Error(), "404") {
			return err
		}
		return nil
	})
}

// serve adds a cluster whose API server handles each connection with a function.
func (r *region) serve(clusterID string, handle func(net.Conn)) {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer func() { _ = conn.Close() }()
				handle(conn)
			})
		}
	})
	r.t.Cleanup(func() {
		_ = listener.Close()
		r.close()
		connections.Wait()
	})
	r.clusters.Store(clusterID, listener.Addr().String())
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

func (r *region) dial(clusterID string) net.Conn {
	r.t.Helper()
	conn, err := r.replica(0).Dial(r.t.Context(), managementCluster, clusterID)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dialer returns a function that connects to an API server through the tunnel, whatever the address.
func (r *region) dialer(clusterID string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return r.replica(0).Dial(ctx, managementCluster, clusterID)
	}
}

// exchange sends data and expects it back.
func exchange(conn net.Conn, data []byte) error {
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		written <- err
	}()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("the data differs")
	}
	return <-written
}

// TestConnections exchanges data over many connections at the same time, each larger than all buffers.
func TestConnections(t *testing.T) {
	r := newRegion(t, 1, nil)
	r.serve(clusterID, echo)
	r.start()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			conn, err := r.replica(0).Dial(t.Context(), managementCluster, clusterID)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			if err := exchange(conn, bytes.Repeat([]byte{byte(i)}, 3*tunnel.StreamBuffer)); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// TestUnreadConnectionDoesNotDelayOthers leaves the data of several connections unread, until their buffers are full. Another connection works.
func TestUnreadConnectionDoesNotDelayOthers(t *testing.T) {
	r := newRegion(t, 1, nil)
	r.serve(clusterID, echo)
	var sent atomic.Int64
	r.serve("endless", func(conn net.Conn) {
		for part := make([]byte, 32<<10); ; {
			n, err := conn.Write(part)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	r.start()
	for range 5 {
		r.dial("endless")
	}
	previous := int64(-1)
	eventually.Soon(t, "the buffers are full", func() error {
		now := sent.Load()
		defer func() { previous = now }()
		if now < 5*tunnel.StreamBuffer || now != previous {
			return fmt.Errorf("%d bytes are sent", now)
		}
		return nil
	})

	if err := exchange(r.dial(clusterID), make([]byte, 2*tunnel.StreamBuffer)); err != nil {
		t.Error(err)
	}
}

// TestEndOfConnections ends connections on each side. The other side gets the end.
func TestEndOfConnections(t *testing.T) {
	r := newRegion(t, 1, nil)
	ended := make(chan error, 1)
	r.serve("closes", func(conn net.Conn) { _, _ = conn.Write([]byte("bye")) })
	r.serve("reads", func(conn net.Conn) {
		_, err := io.Copy(io.Discard, conn)
		ended <- err
	})
	r.start()
	for range 50 {
		if text, err := io.ReadAll(r.dial("closes")); err != nil || string(text) != "bye" {
			t.Fatalf("%q: %v", text, err)
		}
	}
	conn := r.dial("reads")
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	<-ended
	conn = r.dial("reads")
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read after its deadline: %v", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Error(err)
	}
	r.stopAgent()
	<-ended
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection continues without the agent")
	}
}

// TestRefusals connects to what does not exist.
func TestRefusals(t *testing.T) {
	r := newRegion(t, 1, nil)
	r.clusters.Store("closed", netfault.ClosedAddress(t))
	r.start()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx              context.Context
		cluster, id, err string
	}{
		"unknown cluster":            {t.Context(), managementCluster, "unknown", agent.ErrUnknownCluster.Error()},
		"closed port":                {t.Context(), managementCluster, "closed", "502"},
		"another management cluster": {t.Context(), "mgmt-2", clusterID, tunnel.ErrNotConnected.Error()},
		"canceled":                   {canceled, managementCluster, clusterID, context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := r.replica(0).Dial(test.ctx, test.cluster, test.id); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, want %q", err, test.err)
			}
		})
	}
}

// TestHandshakesAreRefused sends handshakes that are not those of the agent.
func TestHandshakesAreRefused(t *testing.T) {
	r := newRegion(t, 1, nil)
	for name, test := range map[string]struct {
		method, path, token, protocol string
		status                        int
	}{
		"no token":                   {http.MethodGet, managementCluster, "", tunnel.Protocol, http.StatusUnauthorized},
		"another application":        {http.MethodGet, managementCluster, "application-2", tunnel.Protocol, http.StatusForbidden},
		"another management cluster": {http.MethodGet, "mgmt-2", application, tunnel.Protocol, http.StatusForbidden},
		"no management cluster":      {http.MethodGet, "", application, tunnel.Protocol, http.StatusForbidden},
		"longer path":                {http.MethodGet, managementCluster + "/x", application, tunnel.Protocol, http.StatusForbidden},
		"another protocol":           {http.MethodGet, managementCluster, application, "v2.tunnel.hcpmesh.io", http.StatusBadRequest},
		"no handshake":               {http.MethodPost, managementCluster, application, tunnel.Protocol, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), test.method, r.front.URL+tunnel.Path+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.token != "" {
				request.Header.Set("Authorization", "Bearer "+test.token)
			}
			for key, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": test.protocol} {
				request.Header.Set(key, value)
			}
			transport := r.front.Client().Transport.(*http.Transport).Clone()
			transport.ForceAttemptHTTP2, transport.TLSNextProto, transport.DisableKeepAlives = false, map[string]func(string, *tls.Conn) http.RoundTripper{}, true
			transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
			response, err := (&http.Client{Transport: transport}).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != test.status {
				t.Errorf("%s, want status %d", response.Status, test.status)
			}
		})
	}
}

// TestEachReplicaHasTunnel connects through each replica behind a load balancer, also after the restart of one.
func TestEachReplicaHasTunnel(t *testing.T) {
	r := newRegion(t, 3, nil)
	r.serve(clusterID, echo)
	r.start()
	r.replica(1).Close()
	if _, err := r.replica(1).Dial(t.Context(), managementCluster, clusterID); err == nil {
		t.Error("a replica connects after its end")
	}
	r.startReplica(1)
	for i := range r.servers {
		r.connected(i)
		conn, err := r.replica(i).Dial(t.Context(), managementCluster, clusterID)
		if err != nil {
			t.Fatal(err)
		}
		if err := exchange(conn, []byte("x")); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
}

// TestSilentTunnelIsReplaced makes the network between gateway and agent silent, without closing a connection. Both sides notice it, and the agent connects
// again when the network works.
func TestSilentTunnelIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRegion(t, 1, nil)
	r.serve(clusterID, echo)
	network := netfault.StartProxy(t, strings.TrimPrefix(r.front.URL, "https://"))
	r.address = network.Address
	r.start()
	conn := r.dial(clusterID)
	network.Hang()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a connection has data from a silent network")
	}
	if _, err := r.replica(0).Dial(t.Context(), managementCluster, clusterID); !errors.Is(err, tunnel.ErrNotConnected) {
		t.Errorf("%v, want %v", err, tunnel.ErrNotConnected)
	}
	network.Continue()
	r.connected(0)
	if err := exchange(r.dial(clusterID), []byte("x")); err != nil {
		t.Error(err)
	}
}

// TestTunnelIsReplaced opens connections while tunnels are replaced. No connection fails, and one that began in the first tunnel continues.
func TestTunnelIsReplaced(t *testing.T) {
	const lifetime = 10 * time.Minute
	clock, metrics := clocktest.New(), prometheus.NewPedanticRegistry()
	r := newRegion(t, 1, func(o *tunnel.Options) { o.Clock, o.Lifetime, o.Drain, o.Metrics = clock, lifetime, time.Hour, metrics })
	r.serve(clusterID, echo)
	r.start(func(o *agent.Options) { o.Clock = clock })
	first := r.dial(clusterID)
	works := func() {
		t.Helper()
		for name, each := range map[string]net.Conn{"a new connection": r.dial(clusterID), "the first connection": first} {
			if err := exchange(each, []byte("x")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	clock.Step(lifetime / 10)
	for range 3 { // the age of the tunnel is a tenth of its lifetime
		works()
		clock.Step(lifetime * 8 / 10)
		awaitTunnels(t, metrics, 2)
		works()
		clock.Step(lifetime / 10)
		awaitTunnels(t, metrics, 1)
	}
	works()
}

// awaitTunnels waits until a gateway begins connections in a number of tunnels.
func awaitTunnels(t *testing.T, metrics prometheus.Gatherer, want float64) {
	t.Helper()
	eventually.Soon(t, fmt.Sprintf("the gateway has %v tunnels", want), func() error {
		families, err := metrics.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			if family.GetName() != "gateway_access_tunnels" {
				continue
			}
			if got := family.GetMetric()[0].GetGauge().GetValue(); got != want {
				return fmt.Errorf("it has %v", got)
			}
			return nil
		}
		return errors.New("the metric is missing")
	})
}

// TestConnectionsEndWithTheDrain ends connections that are left when the tunnel has been replaced.
func TestConnectionsEndWithTheDrain(t *testing.T) {
	const lifetime, drain = 10 * time.Minute, time.Minute
	clock := clocktest.New()
	r := newRegion(t, 1, func(o *tunnel.Options) { o.Clock, o.Lifetime, o.Drain = clock, lifetime, drain })
	r.serve(clusterID, echo)
	r.start() // its clock is the real one: no other tunnel replaces the first one
	conn := r.dial(clusterID)
	clock.Step(lifetime)
	eventually.Soon(t, "the drain has begun", func() error {
		if !clock.HasWaiters() {
			return errors.New("nothing waits for its end")
		}
		return nil
	})
	if err := exchange(conn, []byte("x")); err != nil {
		t.Errorf("a connection in the drain: %v", err)
	}
	clock.Step(drain)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes", n)
	}
}
