package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/openapi/check"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/dispatch"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/seal"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/skiptoken"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/traffic"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/faults"
)

const location = "westus3"

// harness is a frontend on a real store (the emulator) and a Cluster Service that keeps its promises in memory.
type harness struct {
	faults         *faults.Set
	db             *database.DB
	clusterService *fleet
	server         http.Handler
	url            string
	client         *http.Client
	metrics        *prometheus.Registry
}

// newHarness makes a frontend; changes change its configuration.
func newHarness(t testing.TB, changes ...func(*server.Config)) *harness {
	t.Helper()
	ctx := t.Context()
	cosmos, err := emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey, EnableFaults: true, FaultSeed: 1})
	if err != nil {
		t.Fatal(err)
	}
	account := httptest.NewServer(cosmos)
	t.Cleanup(func() {
		account.Close()
		if err := cosmos.Close(); err != nil {
			t.Error(err)
		}
	})
	db, err := database.Open(ctx, database.Options{Endpoint: account.URL, Key: emulator.WellKnownKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.EnsureSchema(ctx); err != nil {
		t.Fatal(err)
	}
	offer, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Random()
	if err != nil {
		t.Fatal(err)
	}

	h := &harness{faults: cosmos.Faults(), db: db, clusterService: &fleet{generations: map[string]int64{}, deleted: map[string]bool{}}, metrics: prometheus.NewRegistry()}
	log := slog.New(slog.DiscardHandler)
	dispatcher := dispatch.New(clusterservice.NewClient(h.clusterService.serve(t)), log, h.metrics)
	workers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { dispatcher.Run(workers) })
	t.Cleanup(func() { stop(); wg.Wait() })

	recorder, err := traffic.FromEnvironment("frontend")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := recorder.Close(); err != nil {
			t.Error(err)
		}
	})
	config := server.Config{
		Database: db, Dispatcher: dispatcher, Rules: validation.NewRules(offer, location), Offer: offer, SkipTokens: skiptoken.New(keys), Sealer: keys,
		Notifications: asyncoperation.Policy{Hosts: []string{"management.azure.com"}},
		Location:      location, Health: http.NotFoundHandler(), Log: log, Metrics: h.metrics,
	}
	for _, change := range changes {
		change(&config)
	}
	h.server = recorder.Handler(server.New(config))
	if _, measuring := t.(*testing.B); !measuring {
		h.server = h.watch(t, h.server)
	}
	api := httptest.NewServer(h.server)
	t.Cleanup(api.Close)
	h.url, h.client = api.URL, api.Client()
	h.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	return h
}

// watch lets a test fail when an answer departs from the ARM contract, whatever the test is about. The test is told when
// it is over, because departures are found in the server's goroutines and in fuzz targets.
func (h *harness) watch(t testing.TB, handler http.Handler) http.Handler {
	t.Helper()
	var mu sync.Mutex
	departures := map[string]bool{}
	watched := check.Watch(handler, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		departures[err.Error()] = true
	})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for departure := range departures {
			t.Error(departure)
		}
	})
	return watched
}

// fleet is a Cluster Service that stores uids and generations as the real one promises to, and does nothing with them.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer

	mu          sync.Mutex
	generations map[string]int64
	deleted     map[string]bool
}

func (f *fleet) serve(t testing.TB) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	grpcServer := grpc.NewServer()
	clusterservicev1.RegisterClusterServiceServer(grpcServer, f)
	var wg sync.WaitGroup
	wg.Go(func() { _ = grpcServer.Serve(listener) })
	connection, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = connection.Close()
		grpcServer.Stop()
		wg.Wait()
	})
	return connection
}

func (f *fleet) apply(uid string, generation int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deleted[uid] {
		return status.Error(codes.FailedPrecondition, "the uid was deleted")
	}
	f.generations[uid] = max(f.generations[uid], generation)
	return nil
}

func (f *fleet) remove(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleted[uid] = true
}

// generation is what is stored of a uid; 0 when it is unknown.
func (f *fleet) generation(uid string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.generations[uid]
}

func (f *fleet) ApplyCluster(_ context.Context, r *clusterservicev1.ApplyClusterRequest) (*clusterservicev1.Cluster, error) {
	return &clusterservicev1.Cluster{Uid: r.GetUid(), Generation: r.GetGeneration()}, f.apply(r.GetUid(), r.GetGeneration())
}

func (f *fleet) DeleteCluster(_ context.Context, r *clusterservicev1.DeleteClusterRequest) (*clusterservicev1.Cluster, error) {
	f.remove(r.GetUid())
	return &clusterservicev1.Cluster{Uid: r.GetUid()}, nil
}

func (f *fleet) ApplyNodePool(_ context.Context, r *clusterservicev1.ApplyNodePoolRequest) (*clusterservicev1.NodePool, error) {
	if f.generation(r.GetClusterUid()) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "the cluster is unknown")
	}
	return &clusterservicev1.NodePool{Uid: r.GetUid(), Generation: r.GetGeneration()}, f.apply(r.GetUid(), r.GetGeneration())
}

func (f *fleet) DeleteNodePool(_ context.Context, r *clusterservicev1.DeleteNodePoolRequest) (*clusterservicev1.NodePool, error) {
	f.remove(r.GetUid())
	return &clusterservicev1.NodePool{Uid: r.GetUid()}, nil
}

func (f *fleet) ApplyExternalAuth(_ context.Context, r *clusterservicev1.ApplyExternalAuthRequest) (*clusterservicev1.ExternalAuth, error) {
	if f.generation(r.GetClusterUid()) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "the cluster is unknown")
	}
	return &clusterservicev1.ExternalAuth{Uid: r.GetUid(), Generation: r.GetGeneration()}, f.apply(r.GetUid(), r.GetGeneration())
}

func (f *fleet) DeleteExternalAuth(_ context.Context, r *clusterservicev1.DeleteExternalAuthRequest) (*clusterservicev1.ExternalAuth, error) {
	f.remove(r.GetUid())
	return &clusterservicev1.ExternalAuth{Uid: r.GetUid()}, nil
}
