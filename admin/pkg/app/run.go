package app

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/admin/pkg/audithistory"
	"github.com/hcpmesh/hcpmesh/admin/pkg/egresslink"
	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/admin/pkg/live"
	"github.com/hcpmesh/hcpmesh/admin/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
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
	return Serve(ctx, p, options, listener)
}

// Serve is Run with a listener, which it closes.
func Serve(ctx context.Context, p *process.Process, options Options, listener net.Listener) error {
	defer func() { _ = listener.Close() }()
	roles, err := access.Load(options.RolesFile)
	if err != nil {
		return fmt.Errorf("--roles-file: %w", err)
	}
	policy, err := elevation.LoadPolicy(options.AccessPolicyFile)
	if err != nil {
		return fmt.Errorf("--access-policy-file: %w", err)
	}
	seals, err := elevation.LoadSealer(options.IntentKeyFile)
	if err != nil {
		return fmt.Errorf("--intent-key-file: %w", err)
	}
	tickets, err := options.tickets(policy)
	if err != nil {
		return err
	}
	transport, err := options.Mesh.Load(mesh.Admin)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(transport.Collectors()...)
	issuer, audience := intent.RegionIssuer(transport.ID().TrustDomain)
	signer, err := intent.LoadSigner(options.IntentKeyFile, issuer, audience)
	if err != nil {
		return fmt.Errorf("--intent-key-file: %w", err)
	}
	p.Metrics.MustRegister(keyfile.Collector("intent-key-file", signer.Ring))
	db, err := database.Open(ctx, options.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	connection, err := clusterservice.Dial(ctx, options.ClusterServiceAddress, transport)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	bundles := maestro.New(options.MaestroURL, transport)
	defer bundles.Close()
	options.Authentication.Claims = roles.Claims()
	authenticator, keepFresh, err := options.Authentication.Authenticator(p.Log, p.Metrics)
	if err != nil {
		return err
	}
	p.Ready("authentication", authenticator.Ready)
	// The layers, Cosmos DB included, are no readiness dependencies: explanations are needed most while one is unavailable.
	fleet := clusterservicev1.NewClusterServiceClient(connection)
	var components *layers.Config
	if options.ComponentsFile != "" {
		if components, err = layers.Load(options.ComponentsFile); err != nil {
			return fmt.Errorf("--components-file: %w", err)
		}
	}
	monitor, err := layers.New(layers.Options{
		Config: components, Own: server.Questions(db, fleet, bundles), History: layers.StoredHistory{Database: db}, Metrics: p.Metrics, Log: p.Log,
	})
	if err != nil {
		return fmt.Errorf("--components-file: %w", err)
	}
	records, err := options.Audit.Recorder(ctx, "admin", p.Log, p.Metrics)
	if err != nil {
		return err
	}
	refused := refusals.New(records)
	var changes *live.Changes
	feed := database.FeedOptions{}
	if options.Portal.Listen != "" {
		changes = live.NewChanges(live.Options{Database: db, Fleet: fleet, Now: time.Now, Log: p.Log, Metrics: p.Metrics})
		feed.Read = changes.NoteAdminRead
	}
	elevations := elevation.NewWatcher(db, seals, feed, p.Log, p.Metrics)
	if changes != nil {
		elevations.Observe(changes.TakeAdmin)
	}
	auditSink, auditWitness, err := options.Audit.Storage()
	if err != nil {
		return err
	}
	auditKeys, err := options.auditKeys()
	if err != nil {
		return err
	}
	ends := verify.NewEnds(auditSink, auditWitness, auditKeys, p.Log, p.Metrics)
	var gateway *server.Gateway
	if options.GatewayURL != "" {
		keys, err := seal.ReadPublic(options.GatewayKeyFile)
		if err != nil {
			return fmt.Errorf("--gateway-key-file: %w", err)
		}
		gateway = &server.Gateway{URL: strings.TrimSuffix(options.GatewayURL, "/"), Keys: keys, ServiceCluster: options.ServiceClusterSessions}
	}
	recordings, err := options.recordings(p.Metrics)
	if err != nil {
		return err
	}
	fired, err := options.alerts()
	if err != nil {
		return err
	}
	silences, err := options.silences()
	if err != nil {
		return err
	}

	api := server.New(server.Config{
		Database: db, Fleet: fleet, Maestro: bundles, Layers: monitor, AskHostedAPI: layers.HostedAPIServer, Access: roles, Policy: policy, Seals: seals, Tickets: tickets, Elevations: elevations,
		Authenticator: authenticator, Intents: signer, Audit: records, Refusals: refused, AuditHistory: audithistory.New(auditSink, auditWitness, auditKeys), Alerts: fired, Silences: silences, Gateway: gateway, Recordings: recordings, Environment: options.Environment, Log: p.Log, Metrics: p.Metrics,
	})
	// Callers authenticate with tokens and not with certificates.
	httpServer := process.NewHTTPServer(process.Calls, transport.PublicHandler(api), p.Log)
	pages, err := options.portal(api, db, changes, transport, p.Log, p.Metrics)
	if err != nil {
		return err
	}
	httpServer.RegisterOnShutdown(elevations.Release)
	links := egresslink.NewSealer(db, signer, p.Log, p.Metrics)
	workers, stopWorkers := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { keepFresh(workers) })
	wg.Go(func() { monitor.Run(workers) })
	wg.Go(func() { elevations.Run(workers) })
	wg.Go(func() { api.CheckTickets(workers) })
	wg.Go(func() { links.Run(workers) })
	wg.Go(func() { ends.Run(workers) })
	if changes != nil {
		wg.Go(func() { changes.Run(workers) })
	}
	recording, stopRecording := context.WithCancel(context.WithoutCancel(ctx))
	var recorded sync.WaitGroup
	recorded.Go(func() { records.Run(recording) })
	wg.Go(func() { refused.Run(workers) })
	// The audit ends after everything that it records.
	defer recorded.Wait()
	defer stopRecording()
	defer wg.Wait()
	defer stopWorkers()

	servers, ctx := errgroup.WithContext(ctx)
	if pages != nil {
		p.Log.Info("serving the SRE portal", logkey.Address, pages.listener.Addr().String(), logkey.URL, options.Portal.URL)
		servers.Go(func() error {
			return process.ServeHTTP(ctx, pages.http, transport.PublicListener(pages.listener), shutdownTimeout)
		})
	}
	p.Log.Info("serving the REST API for SREs", logkey.Address, listener.Addr().String())
	servers.Go(func() error {
		return process.ServeHTTP(ctx, httpServer, transport.PublicListener(listener), shutdownTimeout)
	})
	return servers.Wait()
}
