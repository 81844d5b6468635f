package maestro

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/credentials"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	fake "github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
)

var (
	databases  *postgrestest.Server
	management kubeapitest.Shared
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	code := postgrestest.Main(m, &databases)
	management.Close()
	os.Exit(code)
}

// TestInMemory runs the suite against the server of Cluster Service's tests.
func TestInMemory(t *testing.T) {
	testConformance(t, func(t *testing.T) implementation {
		server := must.Get(fake.Start(consumer))(t)
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() { server.RunAgents(ctx, func(fake.Object, int) bool { return false }) })
		t.Cleanup(func() { cancel(); server.Stop(); group.Wait() })
		return implementation{client: func(source string) *maestro.Client { return newClient(t, server.Address, source, nil) }}
	})
}

// TestOurs runs the suite against our server and agent.
func TestOurs(t *testing.T) {
	testConformance(t, func(t *testing.T) implementation {
		region := newRegion(t)
		server := region.StartServer()
		region.Serve(server, consumer)
		startAgent(t, region)
		return implementation{client: func(source string) *maestro.Client {
			transport := credentials.NewTLS(region.Identity(source).ClientTLS(mesh.MaestroServer))
			return newClient(t, "passthrough:///"+server.GRPC, source, transport)
		}}
	})
}

// TestPublished runs the suite against the published server with our agent, if the server is built. A nightly run builds it.
func TestPublished(t *testing.T) {
	program := nightly.Program(t, "maestro", "bin/maestro")
	testConformance(t, func(t *testing.T) implementation {
		region := newRegion(t)
		server := region.StartPublishedServer(program, nil)
		region.Register(server, consumer)
		startAgent(t, region)
		return implementation{published: true, client: func(source string) *maestro.Client {
			return newClient(t, "passthrough:///"+server.GRPC, source, nil)
		}}
	})
}

func newClient(t *testing.T, address, source string, transport credentials.TransportCredentials) *maestro.Client {
	t.Helper()
	client := must.Get(maestro.NewClient(address, source, transport, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newRegion(t *testing.T) *maestrotest.Region {
	t.Helper()
	return maestrotest.New(t, databases.Database(t), slog.New(slog.DiscardHandler))
}

// startAgent starts our agent on the shared management cluster.
func startAgent(t *testing.T, region *maestrotest.Region) {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", management.Cluster(t).Kubeconfig()))(t)
	thirdParty := must.Get(nightly.ThirdParty())(t)
	region.StartAgent(consumer, agent.Options{Cluster: config, CRDDir: filepath.Join(thirdParty, "crds", "work")})
}
