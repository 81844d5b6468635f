// Package conformance tests Maestro through its APIs, with a real server, real agents, and real PostgreSQL, kube-apiserver, etcd and
// MQTT broker. Tests use only gRPC and REST like a source, and the objects on the management cluster. For each known fault of the
// published server that ours must not have, there is a test with the name of the fault.
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
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

var (
	database *postgrestest.Server
	// management is the management cluster of all tests. Each test uses its own consumers.
	management kubeapitest.Shared
	workCRDs   sync.Once
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	// The library of the work agent uses klog, which has one logger per process.
	if os.Getenv("MAESTRO_TEST_LOG") == "" {
		klog.SetSlogLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	}
	code := postgrestest.Main(m, &database)
	management.Close()
	os.Exit(code)
}

// root returns the root folder of the repository.
func root(t testing.TB) string {
	t.Helper()
	return must.Get(filepath.Abs("../.."))(t)
}

// cluster returns the client configuration of the management cluster, which has the CRDs of the work agent.
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
		t.Fatalf("installing the CRDs of the work agent: %v", err)
	}
	return config
}

// region is the Maestro of one test.
type region struct {
	*maestrotest.Region
	t testing.TB
}

// newRegion creates a migrated database and starts a broker. The test starts servers and agents.
func newRegion(t testing.TB) *region {
	t.Helper()
	return &region{maestrotest.New(t, database.Migrated(t, store.Migrations()), logger(t)), t}
}

func logger(t testing.TB) *slog.Logger {
	if os.Getenv("MAESTRO_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// startAgent starts the agent of a consumer on the management cluster.
func (r *region) startAgent(consumer string) *maestrotest.Process {
	r.t.Helper()
	return r.StartAgent(consumer, agent.Options{Cluster: cluster(r.t)})
}

// consumer registers a consumer with a unique name and waits until a server serves it.
func (r *region) consumer(s *maestrotest.Server) string {
	r.t.Helper()
	name := unique("mgmt")
	r.Serve(s, name)
	return name
}

// newConsumer registers a consumer with a unique name.
func (r *region) newConsumer(s *maestrotest.Server) string {
	r.t.Helper()
	name := unique("mgmt")
	r.Register(s, name)
	return name
}

func (r *region) dynamic() dynamic.Interface {
	r.t.Helper()
	return must.Get(dynamic.NewForConfig(cluster(r.t)))(r.t)
}
