// Package conformance tests Maestro from outside: a real server and real agents around a real PostgreSQL, kube-apiserver,
// etcd and MQTT broker. A test sees only what a source sees through gRPC and REST, and what is on the cluster. Each
// fault that the published server has, and ours must not, is a test named after it.
package conformance

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/server"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/broker"
)

var (
	database *postgrestest.Server
	// management is the management cluster that all tests share; each has consumers and namespaces of its own.
	management kubeapitest.Shared
	workCRDs   sync.Once
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	// The work agent's library logs through klog, which knows only one place for the whole process.
	if os.Getenv("MAESTRO_TEST_LOG") == "" {
		klog.SetSlogLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	code := postgrestest.Main(m, &database)
	management.Close()
	os.Exit(code)
}

// root is the repository's root folder.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.work")); statErr == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.work above the test")
	return ""
}

// cluster connects to the management cluster, which knows the work agent's resources.
func cluster(t testing.TB) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", management.Cluster(t).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, 0
	workCRDs.Do(func() {
		_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(root(t), ".build", "third-party", "crds", "work")}, ErrorIfPathMissing: true,
		})
	})
	if err != nil {
		t.Fatalf("installing the work agent's resources: %v", err)
	}
	return config
}

// region is one test's Maestro.
type region struct {
	t         testing.TB
	authority *mesh.Authority
	dir       string
	db        string
	broker    *broker.Broker
	brokerAt  string
	log       *slog.Logger
	tune      func(*server.Config)
	tuneAgent func(*agent.Options)
	servers   []*server.Server
}

// newRegion makes a database and a broker. Servers and agents are started by the test.
func newRegion(t testing.TB) *region {
	t.Helper()
	dir := t.TempDir()
	authority, err := mesh.OpenAuthority(filepath.Join(dir, "ca"), "test")
	if err != nil {
		t.Fatal(err)
	}
	r := &region{t: t, authority: authority, dir: dir, db: database.Database(t), log: logger(t)}
	r.issue("broker", mesh.EventGridEmulator, "127.0.0.1", "localhost")
	r.issue("maestro-server", mesh.MaestroServer, "maestro-server")
	r.issue("cluster-service", mesh.ClusterService, "cluster-service")
	r.startBroker("127.0.0.1:0")
	t.Cleanup(func() { _ = r.broker.Close() })
	return r
}

func logger(t testing.TB) *slog.Logger {
	if os.Getenv("MAESTRO_TEST_LOG") == "" {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func (r *region) issue(name string, peer mesh.Peer, hosts ...string) {
	r.t.Helper()
	if err := r.authority.Issue(filepath.Join(r.dir, name), peer, hosts...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *region) startBroker(address string) {
	r.t.Helper()
	config, err := broker.ServerTLS(filepath.Join(r.dir, "broker"))
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.broker, err = broker.Start(listener, broker.Options{TLS: config, Log: r.log}); err != nil {
		r.t.Fatal(err)
	}
	r.brokerAt = r.broker.Addr()
}

func (r *region) mqtt(name string) *tls.Config {
	r.t.Helper()
	config, err := mqttlink.ClientTLS(filepath.Join(r.dir, name), r.brokerAt)
	if err != nil {
		r.t.Fatal(err)
	}
	return config
}

func (r *region) identity(name string) *mesh.Identity {
	r.t.Helper()
	identity, err := mesh.LoadIdentity(filepath.Join(r.dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return identity
}

// process is something that runs until it is stopped.
type process struct {
	stop func()
	done chan struct{}
}

// run starts something and has the test's end stop it.
func (r *region) run(name string, run func(context.Context) error) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{done: make(chan struct{})}
	p.stop = func() { cancel(); <-p.done }
	go func() {
		defer close(p.done)
		if err := run(ctx); err != nil && ctx.Err() == nil {
			r.t.Errorf("%s stopped: %v", name, err)
		}
	}()
	r.t.Cleanup(p.stop)
	return p
}

type maestroServer struct {
	*process
	server     *server.Server // nil when it is a program
	grpc, rest string
	plain      bool // it speaks plain text, as the published one does behind a mesh
}

// startServer starts a replica and waits until it is ready.
func (r *region) startServer() *maestroServer {
	r.t.Helper()
	s := r.startServerUnready()
	eventually(r.t, 30*time.Second, "the server is ready", func() error {
		for name, check := range s.server.Checks() {
			if err := check(r.t.Context()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	return s
}

func (r *region) startServerUnready() *maestroServer {
	r.t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		return l
	}
	config := server.Config{
		DatabaseURL: r.db, MQTTAddress: r.brokerAt, MQTTTLS: r.mqtt("maestro-server"),
		GRPC: listen(), REST: listen(), TLS: r.identity("maestro-server").ServerTLS(mesh.Allowed(mesh.MaestroServer)...),
		Resend: 2 * time.Second, Heartbeat: time.Second, Log: r.log.With("process", "server"),
	}
	if r.tune != nil {
		r.tune(&config)
	}
	s, err := server.New(context.Background(), config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.servers = append(r.servers, s)
	return &maestroServer{process: r.run("server", s.Run), server: s, grpc: config.GRPC.Addr().String(), rest: config.REST.Addr().String()}
}

// startAgent starts a consumer's agent.
func (r *region) startAgent(consumer string) *process {
	r.t.Helper()
	r.issue(consumer, mesh.MaestroAgent, consumer)
	options := agent.Options{
		Consumer: consumer, MQTTAddress: r.brokerAt, MQTTTLS: r.mqtt(consumer), Cluster: cluster(r.t),
		Log: r.log.With("process", consumer),
	}
	if r.tuneAgent != nil {
		r.tuneAgent(&options)
	}
	a, err := agent.New(options)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.run("agent "+consumer, a.Run)
}

// call calls a server's REST API as cluster-service and decodes the answer.
func (r *region) call(s *maestroServer, method, path string, body, into any) int {
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
	if s.plain {
		scheme = "http://"
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, scheme+s.rest+"/api/maestro/v1"+path, payload)
	if err != nil {
		r.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: r.identity("cluster-service").ClientTLS(mesh.MaestroServer)}}
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

// consumer registers a consumer and waits until a server serves it.
func (r *region) consumer(s *maestroServer) string {
	r.t.Helper()
	name := r.register(s)
	eventually(r.t, 20*time.Second, "consumer "+name+" is served", func() error {
		for _, server := range r.servers {
			if slices.Contains(server.Dispatcher().Serving(), name) {
				return nil
			}
		}
		return errNotYet
	})
	return name
}

// register registers a consumer under a name that no other test uses.
func (r *region) register(s *maestroServer) string {
	r.t.Helper()
	name := unique("mgmt")
	if status := r.call(s, "POST", "/consumers", map[string]any{"name": name}, nil); status != http.StatusCreated {
		r.t.Fatalf("register consumer %s: %d", name, status)
	}
	return name
}

func (r *region) dynamic() dynamic.Interface {
	r.t.Helper()
	client, err := dynamic.NewForConfig(cluster(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

var errNotYet = errors.New("not yet")

// eventually waits until a condition holds.
func eventually(t testing.TB, within time.Duration, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		<-again.C
	}
}
