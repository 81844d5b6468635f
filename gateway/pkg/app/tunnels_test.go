package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// managementCluster is the management cluster of the tests, whose agent has the token of the same name.
const managementCluster = "mgmt-1"

// agents authenticates with tokens that are the IDs of applications.
type agents struct{ engineers }

func (a agents) Authenticate(ctx context.Context, r *http.Request) (authn.Caller, error) {
	caller, err := a.engineers.Authenticate(ctx, r)
	caller.AppID = caller.ObjectID
	return caller, err
}

// oneServer resolves the ID of one cluster.
type oneServer struct{ clusterID, address string }

func (o oneServer) Address(_ context.Context, clusterID string) (string, error) {
	if clusterID != o.clusterID {
		return "", agent.ErrUnknownCluster
	}
	return o.address, nil
}

// connectAgent runs the agent of the management cluster until the test ends. granter is nil if there are no sessions with the management cluster.
func (g *gateway) connectAgent(t *testing.T, resolver agent.Resolver, granter grant.Granter) {
	t.Helper()
	target := must.Get(url.Parse(g.url))(t)
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(target))
	t.Cleanup(front.Close)
	address := must.Get(url.Parse(front.URL))(t)
	authorities := x509.NewCertPool()
	authorities.AddCert(front.Certificate())
	a := agent.New(agent.Options{Gateway: address, ManagementCluster: managementCluster, Token: func(context.Context) (string, error) { return managementCluster, nil },
		TLS: func() *tls.Config { return &tls.Config{RootCAs: authorities} }, Resolver: resolver, Granter: granter, Log: slog.New(slog.NewJSONHandler(g.r.log, nil)), Metrics: prometheus.NewPedanticRegistry()})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	eventually.Soon(t, "the gateway has the tunnel", func() error {
		families, err := g.metrics.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			if family.GetName() == "gateway_access_tunnels" && family.GetMetric()[0].GetGauge().GetValue() > 0 {
				return nil
			}
		}
		return errors.New("it has none")
	})
}

// TestRestrictedClusterIsReachedThroughTunnel sends requests to an API server to which nobody can connect directly: a read, a watch and a command. The
// certificates are those of the session and of the API server, as without a tunnel. Without the agent, the requests fail with a reason for engineers.
func TestRestrictedClusterIsReachedThroughTunnel(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.change = func(p *Parts) {
		p.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("the API server does not accept the connection")
		}
		p.Tunnels = &tunnel.Options{Agents: map[string]string{managementCluster: managementCluster}, Authenticator: agents{}}
	}
	const id = "0123456789abcdef"
	r.cluster(func(c *clusterservicev1.Cluster) {
		c.Spec = &clusterservicev1.ClusterSpec{Api: &clusterservicev1.Api{AuthorizedCidrs: []string{"192.0.2.0/24"}}}
		c.Status.ProvisionShard, c.Status.ClusterId = managementCluster, id
	})
	r.issue(aliceSession, r.request(aliceSession, "alice", asAdmin), 15*time.Minute)
	g := r.start()
	g.await(aliceSession, database.AccessSessionReady)
	if response, body := g.send(http.MethodGet, "alice", alicePath+"/api/v1/pods", ""); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no working tunnel") {
		t.Errorf("%s: %s", response.Status, body)
	}
	g.connectAgent(t, oneServer{id, strings.TrimPrefix(r.endpoint, "https://")}, nil)
	if response, body := g.send(http.MethodGet, "alice", alicePath+"/api/v1/pods", ""); response.StatusCode != http.StatusOK || body != `{"kind":"PodList"}` {
		t.Errorf("%s: %s", response.Status, body)
	}
	r.handle(endless)
	_, watch := g.watch(alicePath + "/api/v1/pods?watch=true")
	defer func() { _ = watch.Close() }()
	r.handle(echo(remoteCommand))
	command := g.opened(execPath, remoteCommand)
	must.Do(t, command.WriteMessage(websocket.BinaryMessage, []byte("\x00ls\r")))
	if _, content, err := command.ReadMessage(); err != nil || string(content) != "\x01ls\r" {
		t.Errorf("%q: %v", content, err)
	}
	seen := r.arrived()
	if peer := seen[0].TLS.PeerCertificates; len(peer) == 0 || peer[0].Subject.CommonName != "system:sre-break-glass:alice" {
		t.Errorf("the API server has the certificates %v", peer)
	}
	// Sessions cannot be used on paths of tunnels, and tunnels not with the tokens of engineers.
	if response, body := g.send(http.MethodGet, "alice", tunnel.Path+managementCluster, ""); response.StatusCode != http.StatusForbidden {
		t.Errorf("%s: %s", response.Status, body)
	}
}

// TestAgentCannotActAsAPIServer lets an agent connect the gateway to a server of its own, with a certificate of another authority. The server gets no
// request, and the engineer no response of it.
func TestAgentCannotActAsAPIServer(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.change = func(p *Parts) {
		p.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("the API server does not accept the connection")
		}
		p.Tunnels = &tunnel.Options{Agents: map[string]string{managementCluster: managementCluster}, Authenticator: agents{}}
	}
	r.cluster(func(c *clusterservicev1.Cluster) {
		c.Status.ProvisionShard, c.Status.ClusterId = managementCluster, "0123456789abcdef"
	})
	r.issue(aliceSession, r.request(aliceSession, "alice", nil), 15*time.Minute)
	g := r.start()
	g.await(aliceSession, database.AccessSessionReady)
	impostor := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		t.Errorf("the impostor got %s %s", request.Method, request.URL)
	}))
	impostor.TLS = &tls.Config{Certificates: []tls.Certificate{serverCertificate(t)}}
	impostor.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	impostor.StartTLS()
	defer impostor.Close()
	g.connectAgent(t, oneServer{"0123456789abcdef", impostor.Listener.Addr().String()}, nil)
	if response, body := g.send(http.MethodGet, "alice", alicePath+"/api/v1/pods", ""); response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "its certificate is not that of the cluster") {
		t.Errorf("%s: %s", response.Status, body)
	}
}

// serverCertificate returns a certificate for loopback of an authority that nobody trusts.
func serverCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	signer, key := newSigner(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestTunnelFlags checks the flags of tunnels.
func TestTunnelFlags(t *testing.T) {
	const one, two = "mgmt-1=2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f01", "mgmt-2=2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f02"
	for name, test := range map[string]struct {
		flags TunnelFlags
		err   string
	}{
		"none":              {TunnelFlags{Replicas: 1}, ""},
		"two":               {TunnelFlags{Agents: one + "," + two, Replicas: 20}, ""},
		"no application":    {TunnelFlags{Agents: "mgmt-1", Replicas: 1}, "--tunnel-agents"},
		"no name":           {TunnelFlags{Agents: one[len("mgmt-1"):], Replicas: 1}, "--tunnel-agents"},
		"path as name":      {TunnelFlags{Agents: "a/b=2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f01", Replicas: 1}, "--tunnel-agents"},
		"twice":             {TunnelFlags{Agents: one + "," + one, Replicas: 1}, "more than once"},
		"no replicas":       {TunnelFlags{}, "--tunnel-replicas"},
		"too many replicas": {TunnelFlags{Replicas: 21}, "--tunnel-replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.flags.Validate()
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, want %q", err, test.err)
			}
		})
	}
}
