package server_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/openapi/check"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/dispatch"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/traffic"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

const location = "westus3"

// harness is a frontend with the Cosmos DB emulator and a Cluster Service in memory.
type harness struct {
	// read counts the bytes that the store has sent, and storeRequests the requests for documents.
	read          *atomic.Int64
	storeRequests *atomic.Int64
	faults        *faults.Set
	db            *database.DB
	// cosmos holds the options to connect to the store.
	cosmos         database.Options
	clusterService *fleet
	rpc            *clusterservice.Client
	server         http.Handler
	url            string
	client         *http.Client
	metrics        *prometheus.Registry
}

// newHarness starts a frontend. changes modify its configuration.
func newHarness(t testing.TB, changes ...func(*server.Config)) *harness {
	t.Helper()
	ctx := t.Context()
	cosmos := must.Get(emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey, EnableFaults: true, FaultSeed: 1}))(t)
	read, storeRequests := &atomic.Int64{}, &atomic.Int64{}
	account := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/docs") {
			storeRequests.Add(1)
		}
		cosmos.ServeHTTP(counted{w, read}, r)
	}))
	t.Cleanup(func() {
		account.Close()
		if err := cosmos.Close(); err != nil {
			t.Error(err)
		}
	})
	options := database.Options{Endpoint: account.URL, Key: emulator.WellKnownKey}
	db := must.Get(database.Open(ctx, options))(t)
	t.Cleanup(db.Close)
	must.Do(t, db.EnsureSchema(ctx))
	offer := must.Get(config.Default())(t)
	keys := must.Get(seal.New())(t)

	h := &harness{read: read, storeRequests: storeRequests, faults: cosmos.Faults(), db: db, cosmos: options, clusterService: newFleet(t), metrics: prometheus.NewRegistry()}
	log := slog.New(slog.DiscardHandler)
	h.rpc = clusterservice.NewClient(h.clusterService.serve(t))
	dispatcher := dispatch.New(h.rpc, log, h.metrics)
	workers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { dispatcher.Run(workers) })
	t.Cleanup(func() { stop(); wg.Wait() })

	recorder := must.Get(traffic.FromEnvironment("frontend"))(t)
	t.Cleanup(func() {
		if err := recorder.Close(); err != nil {
			t.Error(err)
		}
	})
	config := server.Config{
		Database: db, Dispatcher: dispatcher, Credentials: h.rpc, Versions: h.rpc, Rules: validation.NewRules(offer, location), Offer: offer, SkipTokens: server.NewSkipTokens(keys), Sealer: keys,
		Notifications: asyncoperation.Policy{Hosts: []string{"management.azure.com"}},
		Location:      location, ClustersPerSubscription: database.MaxClusterQuota, Health: http.NotFoundHandler(), Log: log, Metrics: h.metrics,
	}
	for _, change := range changes {
		change(&config)
	}
	h.server = recorder.Handler(server.New(config))
	if _, measuring := t.(*testing.B); !measuring {
		h.server = h.checkContract(t, h.server)
	}
	api := httptest.NewServer(h.server)
	t.Cleanup(api.Close)
	h.url, h.client = api.URL, api.Client()
	h.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	return h
}

// counted counts the bytes of responses.
type counted struct {
	http.ResponseWriter
	total *atomic.Int64
}

func (c counted) Write(content []byte) (int, error) {
	c.total.Add(int64(len(content)))
	return c.ResponseWriter.Write(content)
}

// contracts are shared by all harnesses, because compiling them uses more CPU time than most tests.
var contracts = check.NewContracts()

// checkContract makes a test fail if a response violates the ARM contract. It reports violations at the end of the
// test, because they are found in goroutines of the server and in fuzz targets.
func (h *harness) checkContract(t testing.TB, handler http.Handler) http.Handler {
	t.Helper()
	var mu sync.Mutex
	violations := map[string]bool{}
	watched := contracts.Watch(handler, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		violations[err.Error()] = true
	})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for violation := range violations {
			t.Error(violation)
		}
	})
	return watched
}
