package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/proxy"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/session"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// shutdownTimeout limits the time for requests in progress after the process was asked to stop.
const shutdownTimeout = 10 * time.Second

// Run serves until ctx ends. It returns after everything that it started has ended.
func Run(ctx context.Context, p *process.Process, options Options) error {
	listener, err := net.Listen("tcp", options.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer func() { _ = listener.Close() }()
	transport, err := options.Mesh.Load(mesh.GatewayAccess)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(transport.Collectors()...)
	keys, err := seal.LoadPrivate(options.KeyFile)
	if err != nil {
		return fmt.Errorf("--key-file: %w", err)
	}
	p.Metrics.MustRegister(keyfile.Collector("key-file", keys.Ring))
	authenticator, keepFresh, err := options.Authentication.Authenticator(p.Log, p.Metrics)
	if err != nil {
		return err
	}
	p.Ready("authentication", authenticator.Ready)
	tunnels, keepAgentsFresh, err := options.Tunnels.server(options.Authentication, p.Log)
	if err != nil {
		return err
	}
	var serviceCluster session.ServiceClusterGrants
	if options.GrantsURL != "" {
		serviceCluster = grant.NewClient(options.GrantsURL, transport.ClientTransport(mesh.GatewayGrants))
	}
	connection, err := clusterservice.Dial(ctx, options.ClusterServiceAddress, transport)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	db, err := database.Open(ctx, options.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	records, err := options.Audit.Recorder(ctx, string(mesh.GatewayAccess), p.Log, p.Metrics)
	if err != nil {
		return err
	}
	signing, err := audit.LoadKey(options.Audit.KeyFile)
	if err != nil {
		return fmt.Errorf("--audit-signing-key-file: %w", err)
	}
	recordings, err := options.Recordings.Open(signing, recorder.DatabaseIndex{Database: db}, p.Log, p.Metrics)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	workers, stop := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { keepFresh(workers) })
	wg.Go(func() { keepAgentsFresh(workers) })
	wg.Go(func() { records.Run(workers) })
	wg.Go(func() { recordings.Run(workers) })
	// The audit and the recordings end after everything that they record.
	defer wg.Wait()
	defer stop()
	return Serve(ctx, p, Parts{Database: db, Fleet: connection, Keys: keys, Authenticator: authenticator, Audit: records, Recordings: recordings, Dial: options.dial, Tunnels: tunnels,
		ServiceCluster: serviceCluster, Handler: transport.PublicHandler, Listener: transport.PublicListener(listener)})
}

// Parts are the connections of a gateway.
type Parts struct {
	Database      *database.DB
	Fleet         grpc.ClientConnInterface
	Keys          *seal.PrivateKeys
	Authenticator authn.Authenticator
	Audit         audit.Recorder
	Recordings    proxy.Recordings
	// Dial connects directly to API servers; nil means without a proxy.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Tunnels are the options of tunnels, without log and metrics; nil if management clusters have none.
	Tunnels *tunnel.Options
	// ServiceCluster requests tokens for the service cluster; nil if there are no sessions with it.
	ServiceCluster session.ServiceClusterGrants
	// MaxBytes limits the bytes of the upgraded connections of a session; 0 means the default.
	MaxBytes int64
	// Clock is that of sessions, upgraded connections and tunnels; nil means the real one.
	Clock clock.WithDelayedExecution
	// Handler wraps the handler of all requests.
	Handler  func(http.Handler) http.Handler
	Listener net.Listener
}

// Serve is Run with existing connections. Tests call it directly.
func Serve(ctx context.Context, p *process.Process, parts Parts) error {
	var tunnels *tunnel.Server
	var ways session.Tunnels
	var grants session.Grants
	if parts.Tunnels != nil {
		options := *parts.Tunnels
		options.Clock, options.Log, options.Metrics = parts.Clock, p.Log, p.Metrics
		tunnels = tunnel.NewServer(options)
		ways, grants = tunnels, tunnels
		// Requests end before the tunnels.
		defer tunnels.Close()
	}
	servers := session.NewDialer(parts.Dial, ways, p.Metrics)
	sessions := session.NewRegistry(session.Options{Database: parts.Database, Fleet: clusterservicev1.NewClusterServiceClient(parts.Fleet), Keys: parts.Keys, Grants: grants, ServiceCluster: parts.ServiceCluster, Dial: servers.Dial,
		MaxBytes: parts.MaxBytes, Audit: parts.Audit, Clock: parts.Clock, Log: p.Log, Metrics: p.Metrics})
	p.Ready("cosmos", sessions.ReadyCosmos)
	p.Ready("cluster-service", sessions.ReadyFleet)
	refused := refusals.New(parts.Audit)
	gateway := proxy.New(proxy.Options{Sessions: sessions, Authenticator: parts.Authenticator, Audit: parts.Audit, Recordings: parts.Recordings, Refusals: refused, Clock: parts.Clock, Log: p.Log, Metrics: p.Metrics})
	// Responses of watches last as long as their sessions. A client that does not read does not delay the end of its session.
	server := process.NewHTTPServer(process.Streams, parts.Handler(withTunnels(gateway, tunnels)), p.Log)
	server.RegisterOnShutdown(gateway.EndStreams)
	var wg sync.WaitGroup
	workers, stop := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { sessions.Run(workers) })
	wg.Go(func() { refused.Run(workers) })
	defer wg.Wait()
	defer stop()
	defer gateway.Wait()
	defer gateway.EndStreams()
	p.Log.InfoContext(ctx, "serving access sessions", logkey.Address, parts.Listener.Addr().String())
	return process.ServeHTTP(ctx, server, parts.Listener, shutdownTimeout)
}

// withTunnels returns the handler of sessions and tunnels. It compares the path itself: http.ServeMux would redirect paths that the gateway must refuse.
func withTunnels(sessions http.Handler, tunnels *tunnel.Server) http.Handler {
	if tunnels == nil {
		return sessions
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, tunnel.Path) {
			tunnels.ServeHTTP(w, r)
			return
		}
		sessions.ServeHTTP(w, r)
	})
}
