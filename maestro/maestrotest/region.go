// Package maestrotest runs a whole Maestro in a test: a broker, servers and agents, with identities of a certificate authority of
// the test. The test provides PostgreSQL and the management clusters, which several tests share. The conformance tests of
// Maestro use it, and tests of services around Maestro.
package maestrotest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// Region is the Maestro of one test. Everything that it starts stops with the test.
type Region struct {
	// Dir contains a folder for each issued identity.
	Dir string
	// Database is the URL of the database of the servers.
	Database string
	// Broker is the running broker, and BrokerAddress its host:port.
	Broker        *broker.Broker
	BrokerAddress string
	// MaxPacketBytes is the limit of packets that brokers announce which are started later; 0 means that of Event Grid.
	MaxPacketBytes uint32
	// Rules authorize the clients of the servers: those of a region, RESTClient and OtherSource.
	Rules []mesh.Rule
	// Tune changes the configuration of servers before they start; nil changes nothing.
	Tune func(*app.Config)
	// Servers are the servers that were started in the process of the test.
	Servers []*app.Server
	Log     *slog.Logger

	t         testing.TB
	authority *mesh.Authority
}

// New issues the identities of Maestro's server and of its clients, and starts a broker. The test starts servers and agents.
func New(t testing.TB, database string, log *slog.Logger) *Region {
	t.Helper()
	r := &Region{Dir: t.TempDir(), Database: database, Log: log, Rules: slices.Concat(mesh.Rules(), testRules()), t: t}
	var err error
	if r.authority, err = mesh.OpenAuthority(filepath.Join(r.Dir, "ca"), "test"); err != nil {
		t.Fatal(err)
	}
	r.Issue("broker", mesh.EventGridEmulator, "127.0.0.1", "localhost")
	for _, peer := range []mesh.Peer{mesh.MaestroServer, mesh.ClusterService, mesh.Admin, mesh.Hcpctl, RESTClient, OtherSource} {
		r.Issue(string(peer), peer, string(peer))
	}
	// A test may start another broker at the address.
	r.StartBroker(netfault.ReserveAddress(t))
	t.Cleanup(func() { _ = r.Broker.Close() })
	return r
}

// The workloads of tests. RESTClient may use the whole REST API; no workload of a region may. OtherSource publishes under its own
// name, next to Cluster Service.
const (
	RESTClient  mesh.Peer = "rest-client"
	OtherSource mesh.Peer = "another-source"
)

// testRules returns the rules for RESTClient and OtherSource.
func testRules() []mesh.Rule {
	var rules []mesh.Rule
	for _, rule := range mesh.Rules() {
		switch {
		case rule.Server != mesh.MaestroServer:
			continue
		case rule.Protocol == mesh.HTTP:
			rule.Clients = []mesh.Grant{{Client: RESTClient}}
		case len(rule.Clients) == 0 || rule.Clients[0].Condition.Field == "":
			continue // of no source
		default:
			condition := rule.Clients[0].Condition
			condition.Values = []string{string(OtherSource)}
			rule.Clients = []mesh.Grant{{Client: OtherSource, Condition: condition}}
		}
		rules = append(rules, rule)
	}
	return rules
}

// Issue issues an identity into the folder name.
func (r *Region) Issue(name string, peer mesh.Peer, hosts ...string) {
	r.t.Helper()
	if err := r.authority.Issue(filepath.Join(r.Dir, name), peer, hosts...); err != nil {
		r.t.Fatal(err)
	}
}

// Identity returns an issued identity.
func (r *Region) Identity(name string) *mesh.Identity {
	r.t.Helper()
	identity, err := mesh.LoadIdentity(filepath.Join(r.Dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return identity
}

// MQTT returns the TLS configuration of a client of the broker with an issued identity.
func (r *Region) MQTT(name string) *tls.Config {
	r.t.Helper()
	identity, err := mqttlink.LoadIdentity(filepath.Join(r.Dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	config, err := identity.ClientTLS(r.BrokerAddress)
	if err != nil {
		r.t.Fatal(err)
	}
	return config
}

// StartBroker starts a broker, for example after the first one was closed.
func (r *Region) StartBroker(address string) {
	r.t.Helper()
	identity, err := broker.LoadIdentity(filepath.Join(r.Dir, "broker"))
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.Broker, err = broker.Start(listener, broker.Options{TLS: identity.TLS(), MaxPacketBytes: r.MaxPacketBytes, Log: r.Log}); err != nil {
		r.t.Fatal(err)
	}
	r.BrokerAddress = r.Broker.Addr()
}

// Process is a running part of a Maestro.
type Process struct {
	// Stop stops it and waits until it has stopped. It may be called more than once.
	Stop func()
	// Done is closed when it has stopped.
	Done chan struct{}
}

// Run calls run in a goroutine and stops it when the test ends.
func (r *Region) Run(name string, run func(context.Context) error) *Process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Process{Done: make(chan struct{})}
	p.Stop = func() { cancel(); <-p.Done }
	go func() {
		defer close(p.Done)
		if err := run(ctx); err != nil && ctx.Err() == nil {
			r.t.Errorf("%s stopped: %v", name, err)
		}
	}()
	r.t.Cleanup(p.Stop)
	return p
}

// Server is a Maestro server.
type Server struct {
	// Process is nil if the server is not controlled by the test.
	*Process
	// Server is nil if the server runs in another process.
	Server *app.Server
	// GRPC and REST are the addresses of its APIs.
	GRPC, REST string
	// Plaintext means that the APIs do not use TLS, as those of the published server in a service mesh.
	Plaintext bool
}

// StartServer starts a server and waits until it is ready.
func (r *Region) StartServer() *Server {
	r.t.Helper()
	s := r.StartServerUnready()
	r.AwaitReady(s)
	return s
}

// AwaitReady waits until a server is ready.
func (r *Region) AwaitReady(s *Server) {
	r.t.Helper()
	eventually.Soon(r.t, "the server is ready", func() error {
		for name, check := range s.Server.Checks() {
			if err := check(r.t.Context()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// StartServerUnready starts a server.
func (r *Region) StartServerUnready() *Server {
	r.t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		return l
	}
	name := string(mesh.MaestroServer)
	config := app.Config{
		DatabaseURL: r.Database, MaxConnections: postgrestest.FewConnections, MQTTAddress: r.BrokerAddress, MQTTTLS: r.MQTT(name),
		GRPC: listen(), REST: listen(), Transport: r.Identity(name), Rules: r.Rules,
		Resend: 2 * time.Second, Heartbeat: time.Second, Log: r.Log.With(logkey.Process, "server"),
	}
	if r.Tune != nil {
		r.Tune(&config)
	}
	s, err := app.New(context.Background(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Servers = append(r.Servers, s)
	return &Server{Process: r.Run("server", s.Run), Server: s, GRPC: config.GRPC.Addr().String(), REST: config.REST.Addr().String()}
}

// StartAgent starts the agent of a consumer. The options must name its management cluster; StartAgent sets the connection to this
// Maestro.
func (r *Region) StartAgent(consumer string, options agent.Options) *Process {
	r.t.Helper()
	r.Issue(consumer, mesh.MaestroAgent, consumer)
	options.Consumer, options.MQTTAddress, options.MQTTTLS = consumer, r.BrokerAddress, r.MQTT(consumer)
	options.Cluster = rest.CopyConfig(options.Cluster)
	options.Log = r.Log.With(logkey.Process, consumer)
	a, err := agent.New(options)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.Run("agent "+consumer, a.Run)
}

// Call sends a request to the REST API of a server as RESTClient, decodes the response and returns its status.
func (r *Region) Call(s *Server, method, path string, body, into any) int {
	r.t.Helper()
	return r.CallAs(RESTClient, s, method, path, body, into)
}

// CallAs is Call as another workload.
func (r *Region) CallAs(workload mesh.Peer, s *Server, method, path string, body, into any) int {
	r.t.Helper()
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			r.t.Fatal(err)
		}
		payload = strings.NewReader(string(text))
	}
	scheme := "https://"
	if s.Plaintext {
		scheme = "http://"
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, scheme+s.REST+maestroapi.RESTPath+path, payload)
	if err != nil {
		r.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: r.Identity(string(workload)).ClientTLS(mesh.MaestroServer)}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return response.StatusCode
}

// Register registers a consumer.
func (r *Region) Register(s *Server, name string) {
	r.t.Helper()
	if status := r.CallAs(mesh.Hcpctl, s, http.MethodPost, "/consumers", map[string]any{"name": name}, nil); status != http.StatusCreated {
		r.t.Fatalf("registering consumer %s: status %d", name, status)
	}
}

// Serve registers a consumer and waits until a server serves it.
func (r *Region) Serve(s *Server, name string) {
	r.t.Helper()
	r.Register(s, name)
	eventually.Soon(r.t, "consumer "+name+" is served", func() error {
		var serving []string
		for _, each := range r.Servers {
			serving = each.Dispatcher().Serving()
			if slices.Contains(serving, name) {
				return nil
			}
		}
		return fmt.Errorf("the last of %d servers serves %q", len(r.Servers), serving)
	})

}
