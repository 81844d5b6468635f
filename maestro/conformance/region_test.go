// Package conformance tests Maestro from outside: a real server and real agents around a real PostgreSQL, kube-apiserver,
// etcd and MQTT broker. A test sees only what a source sees through gRPC and REST, and what is on the cluster. Each
// fault that the published server has, and ours must not, is a test named after it.
package conformance

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
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
	*maestrotest.Region
	t testing.TB
}

// newRegion makes a database and a broker. Servers and agents are started by the test.
func newRegion(t testing.TB) *region {
	t.Helper()
	return &region{maestrotest.New(t, database.Database(t), logger(t)), t}
}

func logger(t testing.TB) *slog.Logger {
	if os.Getenv("MAESTRO_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// startAgent starts a consumer's agent on the management cluster.
func (r *region) startAgent(consumer string) *maestrotest.Process {
	r.t.Helper()
	return r.StartAgent(consumer, agent.Options{Cluster: cluster(r.t)})
}

// consumer registers a consumer under a name that no other test uses, and waits until a server serves it.
func (r *region) consumer(s *maestrotest.Server) string {
	r.t.Helper()
	name := unique("mgmt")
	r.Serve(s, name)
	return name
}

// newConsumer registers one that need not be served yet.
func (r *region) newConsumer(s *maestrotest.Server) string {
	r.t.Helper()
	name := unique("mgmt")
	r.Register(s, name)
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
