package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/egress"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// internet is the name service and the network that an egress proxy of a test uses.
type internet struct {
	mu      sync.Mutex
	names   map[string]netip.Addr
	servers map[netip.AddrPort]string // addresses of servers on this machine
	dialed  map[netip.AddrPort]int
}

func (i *internet) set(name, address string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.names[name] = netip.MustParseAddr(address)
}

func (i *internet) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if address, found := i.names[host]; found {
		return []netip.Addr{address}, nil
	}
	return nil, errors.New("no such host")
}

func (i *internet) dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	i.mu.Lock()
	i.dialed[address]++
	server, found := i.servers[address]
	i.mu.Unlock()
	if !found {
		return nil, errors.New("no route to host")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", server)
}

// startEgressProxy starts a proxy that reports to the management cluster, and returns the option of a runtime that uses it.
func (m *managementCluster) startEgressProxy(t *testing.T, network *internet) func(*Options) {
	t.Helper()
	dir := t.TempDir()
	authority := must.Get(kubeapi.CreateEgressAuthority(dir))(t)
	config := must.Get(kubeapi.EgressServerTLS(authority.CertificateFile(), authority.KeyFile(), authority.CAFile()))(t)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	reporter := egress.NewReporter(m.client, log)
	proxy := egress.NewServer(egress.Options{Policy: egress.Policy{Lookup: network.lookup}, Dial: network.dial, Limits: egress.DefaultLimits,
		OnAttempt: reporter.Record, Metrics: prometheus.NewRegistry(), Log: log})
	server := proxy.HTTPServer(config)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { reporter.Run(ctx) })
	running.Go(func() { _ = server.ServeTLS(listener, "", "") })
	t.Cleanup(func() {
		_ = server.Close()
		proxy.Close()
		cancel()
		running.Wait()
	})
	return func(o *Options) {
		o.Fidelity = "process"
		o.EgressProxy, o.EgressAuthority = "https://"+listener.Addr().String(), dir
	}
}

// reportsFailure returns a check of the report about connections to a target; without an outcome there must be none.
func reportsFailure(target string, outcome hostedreport.EgressOutcome) func(*hyperv1.HostedCluster) error {
	return func(hc *hyperv1.HostedCluster) error {
		if got := hostedreport.DecodeEgress(hc.Annotations[hostedreport.EgressAnnotation])[target].Outcome; got != outcome {
			return fmt.Errorf("the report is %q", hc.Annotations[hostedreport.EgressAnnotation])
		}
		return nil
	}
}

// TestEgressPolicy checks that a hosted API server connects to an issuer only while the name of the issuer resolves to a public address,
// and that the HostedCluster reports why not.
func TestEgressPolicy(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	issuer := newIssuerWithName(t, "login.example.com")
	private, public := netip.MustParseAddrPort("10.0.0.1:443"), netip.MustParseAddrPort("20.50.2.1:443")
	network := &internet{names: map[string]netip.Addr{}, dialed: map[netip.AddrPort]int{},
		servers: map[netip.AddrPort]string{private: issuer.Listener.Addr().String(), public: issuer.Listener.Addr().String()}}
	network.set("login.example.com", "10.0.0.1")
	m.startRuntime(t, m.options(t.TempDir(), m.startEgressProxy(t, network)))
	s := m.available(t, "egress")
	s.configureOIDC(t, issuer.URL, issuer.authority)

	s.waitCluster(t, reportsFailure("login.example.com:443", hostedreport.EgressAddress))
	token := withToken(issuer.token(t, map[string]any{"email": "ada@example.com", "groups": []string{"engineers"}, "tid": "tenant"}))
	if user, err := s.whoAmI(t, token); !apierrors.IsUnauthorized(err) {
		t.Errorf("authenticated as %v, %v", user, err)
	}
	if n := issuer.requests.Load(); n > 0 {
		t.Errorf("the issuer at a private address got %d requests", n)
	}

	network.set("login.example.com", "20.50.2.1")
	eventually.Soon(t, "a token of the issuer is accepted", func() error {
		_, err := s.whoAmI(t, token)
		return err
	})

	s.waitCluster(t, reportsFailure("login.example.com:443", ""))
	network.mu.Lock()
	if network.dialed[public] == 0 || network.dialed[private] > 0 || len(network.dialed) != 1 {
		t.Errorf("the proxy connected to %v", network.dialed)
	}
	network.mu.Unlock()
	s.delete(t)
	s.expectNothingRuns(t)
}
