// Package restore tests a restore of Cluster Service's database to an earlier state, while the backend and Cosmos DB continue.
// Afterwards the fleet must match the desired state of all customers again. PostgreSQL, Cluster Service, the backend and the
// Cosmos DB emulator are real. Maestro and everything behind it is an in-memory implementation.
package restore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	backendapp "github.com/hcpmesh/hcpmesh/backend/pkg/app"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/updategraph"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

var databases *postgrestest.Server

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &databases)) }

// oneSigningKey is the signing key of all clusters, because generating keys takes time and is not tested here.
var oneSigningKey = sync.OnceValues(signingkey.Generate)

// sealingKeys returns the same keyset for all systems of a test, as replicas share the file.
var sealingKeys = sync.OnceValues(seal.New)

// shardKey returns the public keys of all shards.
var shardKey = sync.OnceValues(func() (*seal.PublicKeys, error) {
	public, _, err := seal.NewPair()
	return public, err
})

// region consists of a Cosmos DB, a PostgreSQL and a Maestro that run throughout, and of a Cluster Service and a backend that are
// restarted.
type region struct {
	t       *testing.T
	records *audittest.Trail
	cosmos  *databasetest.Server
	db      *database.DB
	maestro *maestrotest.Server
	// url is the database URL of Cluster Service.
	url string
	// address is the address of Cluster Service, or nil while it is stopped.
	address     atomic.Pointer[string]
	stopService func()
	// ahead is how much the clock of Cluster Service is ahead: each stop lets the leases of the stopped process end.
	ahead atomic.Int64
	// crash makes the backend crash at a call of Cluster Service, or is nil.
	crash atomic.Pointer[crash]
	// crashed receives a value when the backend has crashed.
	crashed chan struct{}

	mu      sync.Mutex
	metrics *prometheus.Registry
}

func newRegion(t *testing.T) *region {
	t.Helper()
	db, cosmos := databasetest.New(t)
	server := must.Get(maestrotest.Start("mgmt-1", "mgmt-2"))(t)
	t.Cleanup(server.Stop)
	r := &region{t: t, records: audittest.New(t, "backend", 0), cosmos: cosmos, db: db, maestro: server, url: databases.Database(t), crashed: make(chan struct{}, 1)}
	releases := must.Get(release.Load(""))(t)
	versions := map[string]string{}
	for _, release := range releases.Releases() {
		versions[release.Image] = release.Version.String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	hypershift := maestrotest.NewHyperShift(versions)
	group.Go(func() { server.RunAgents(ctx, hypershift.Reconcile) })
	t.Cleanup(func() { cancel(); group.Wait() })
	r.startService()
	return r
}

// startService starts Cluster Service on the current database.
func (r *region) startService() {
	r.t.Helper()
	must := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	releases, err := release.Load("")
	must(err)
	db, err := store.Open(store.Options{URL: r.url, MaxConnections: 10, Now: func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }})
	must(err)
	must(db.Migrate(ctx))
	must(db.ConfigureShards(ctx, []config.Shard{{Name: "mgmt-1", Capacity: 10_000}, {Name: "mgmt-2", Capacity: 10_000}}))
	hub := store.NewWatchHub(db, 4096, slog.New(slog.DiscardHandler))
	client, err := maestro.NewClient(r.maestro.Address, fleet.Source, nil, slog.New(slog.DiscardHandler))
	must(err)
	keeper, err := sealingKeys()
	must(err)
	key, err := shardKey()
	must(err)
	renderer := &render.Renderer{Region: fleet.Region{BaseDomain: "example.com", IssuerBase: "https://oidc.example.com", EndpointURLs: true, ComponentsAfter: time.Hour},
		Environment: "local", Developer: true, Config: config.Default(), PullSecret: []byte(`{"auths":{}}`), Open: keeper.Open, ShardKeys: map[string]*seal.PublicKeys{"mgmt-1": key, "mgmt-2": key}}
	system := app.NewSystem(app.SystemOptions{Store: db, Hub: hub, Maestro: client, Renderer: renderer, Releases: updategraph.Fixed(releases), Keeper: keeper,
		SigningKeys: signingkey.NewPool(16, oneSigningKey), Publishers: 8, Renewals: 10, Metrics: prometheus.NewRegistry(),
		Audit: slog.New(slog.DiscardHandler), Sweep: 500 * time.Millisecond, Agents: time.Second, CheckDeletions: time.Second})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	server := grpc.NewServer()
	csv1.RegisterClusterServiceServer(server, system.API)
	var group sync.WaitGroup
	group.Go(func() { _ = system.Run(ctx) })
	group.Go(func() { _ = server.Serve(listener) })
	address := listener.Addr().String()
	r.address.Store(&address)
	r.stopService = sync.OnceFunc(func() {
		r.address.Store(nil)
		cancel()
		server.Stop()
		group.Wait()
		_ = client.Close()
		db.Close()
		r.ahead.Add(int64(store.DefaultLease))
	})
	r.t.Cleanup(r.stopService)
}

// backup copies Cluster Service's database and returns the URL of the copy. Cluster Service is stopped meanwhile.
func (r *region) backup() (url string) {
	r.t.Helper()
	r.stopService()
	url = databases.DatabaseFrom(r.t, name(r.url))
	r.startService()
	return url
}

// restore restarts Cluster Service on a copy of a backup. A backup can be restored several times.
func (r *region) restore(backup string) {
	r.t.Helper()
	r.stopService()
	r.url = databases.DatabaseFrom(r.t, name(backup))
	r.startService()
}

// name returns the name of the database in a URL.
func name(url string) string {
	base, _, _ := strings.Cut(url, "?")
	return base[strings.LastIndexByte(base, '/')+1:]
}

// connect returns a connection that follows Cluster Service across restarts.
func (r *region) connect(options ...grpc.DialOption) *grpc.ClientConn {
	connection := must.Get(grpc.NewClient("passthrough:///cluster-service", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			address := r.address.Load()
			if address == nil {
				return nil, errors.New("Cluster Service is stopped")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", *address)
		}))...))(r.t)
	return connection
}

// crash ends a backend when left reaches 0: before that call of Cluster Service, or after it.
type crash struct {
	left  atomic.Int64
	after bool
	done  chan struct{}
	once  sync.Once
}

var errCrashed = errors.New("the process has crashed")

// calls intercepts the calls of a backend and lets it crash.
func (r *region) calls(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	d := r.crash.Load()
	if d == nil {
		return invoke(ctx, method, request, reply, connection, options...)
	}
	left := d.left.Add(-1)
	switch {
	case left > 0:
		return invoke(ctx, method, request, reply, connection, options...)
	case left == 0 && d.after:
		_ = invoke(ctx, method, request, reply, connection, options...)
	}
	d.once.Do(func() {
		close(d.done)
		select {
		case r.crashed <- struct{}{}:
		default: // the crash of the same backend has been reported
		}
	})
	return errCrashed
}

// startBackend runs a backend until the test ends, and starts another one after each crash.
func (r *region) startBackend() {
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			connection := r.connect(grpc.WithUnaryInterceptor(r.calls))
			running.Go(func() { r.work(ctx, connection) })
			select {
			case <-ended:
			case <-r.crashed:
			}
			cancel()
			running.Wait()
			_ = connection.Close()
			select {
			case <-ended:
				return
			default:
				r.crash.Store(nil)
			}
		}
	})
	r.t.Cleanup(func() { close(ended); group.Wait() })
}

func (r *region) work(ctx context.Context, connection *grpc.ClientConn) {
	level := slog.LevelError
	if os.Getenv("RESTORE_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	p := process.New("backend", slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: level})))
	r.mu.Lock()
	r.metrics = p.Metrics
	r.mu.Unlock()
	_ = backendapp.Work(ctx, p, r.db, connection, nil, backendapp.Options{
		Replica: "backend-0", Records: r.records, Workers: 16, CascadeDeletions: 10, FeedIdle: 100 * time.Millisecond, LeaseDuration: time.Minute,
		Timing:    decision.Timing{Grace: 10 * time.Millisecond, Coalesce: 50 * time.Millisecond},
		Reconcile: reconcile.Options{MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Second, PageSize: 7},
	})
}
