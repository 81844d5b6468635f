package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/dispatch"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// shutdownTimeout bounds the time that requests in progress have after the process received a signal to stop.
const shutdownTimeout = 10 * time.Second

// Settings of the garbage collector. The live heap has only a few megabytes, so that the default would collect too
// often.
const (
	gcPercent   = 800
	memoryLimit = 384 << 20
)

// Run serves until ctx ends. It returns after all its goroutines have ended.
func Run(ctx context.Context, p *process.Process, options Options) error {
	process.PaceCollector(gcPercent, memoryLimit)
	listener, err := net.Listen("tcp", options.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return Serve(ctx, p, options, listener)
}

// Serve is like Run with a listener, which it closes.
func Serve(ctx context.Context, p *process.Process, options Options, listener net.Listener) error {
	defer func() { _ = listener.Close() }()
	offer, err := config.Load(options.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	tokenKeys, err := loadKeys("skip-token-key-file", options.SkipTokenKeyFile, "skip tokens", p.Log)
	if err != nil {
		return err
	}
	credentialKeys, err := loadKeys("credential-key-file", options.CredentialKeyFile, "private keys of admin credentials", p.Log)
	if err != nil {
		return err
	}
	transport, err := options.Mesh.Load(mesh.Frontend)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(transport.Collectors()...)
	p.Metrics.MustRegister(keyfile.Collector("skip-token-key-file", tokenKeys.Ring), keyfile.Collector("credential-key-file", credentialKeys.Ring))
	db, err := database.Open(ctx, options.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	traces, err := tracing.New(ctx, p.Name, options.Tracing, p.Metrics)
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer traces.Flush(ctx)
	connection, err := clusterservice.Dial(ctx, options.ClusterServiceAddress, transport, traces.DialOption())
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()

	authenticator, keepFresh, err := options.Authentication.Authenticator(p.Log, p.Metrics)
	if err != nil {
		return err
	}
	if authenticator != nil {
		p.Ready("authentication", authenticator.Ready)
	}

	refused, stopAudit, err := refusals.Start(ctx, &options.Audit, string(mesh.Frontend), p.Log, p.Metrics)
	if err != nil {
		return err
	}
	// The audit ends after the last request.
	defer stopAudit()

	schema := &schema{db: db}
	p.Ready("cosmos-db", schema.ready)
	// Cluster Service is not needed to respond to ARM: the backend sends what the dispatcher cannot send.
	clusterService := clusterservice.NewClient(connection).WithoutRecovery()
	dispatcher := dispatch.New(clusterService, p.Log, p.Metrics)
	rules := validation.NewRules(offer, options.Location)
	if options.AllowLoopbackIssuers {
		rules = rules.AllowLoopbackIssuers()
	}
	readiness := process.NewKnownReadiness(p)
	handler := server.New(server.Config{
		Database:      db,
		Dispatcher:    dispatcher,
		Credentials:   clusterService,
		Versions:      clusterService,
		Rules:         rules,
		Offer:         offer,
		SkipTokens:    server.NewSkipTokens(tokenKeys),
		Sealer:        credentialKeys,
		Authenticator: authenticator,
		Tracing:       traces,
		Notifications: options.Notifications,
		Location:      options.Location,

		ClustersPerSubscription: options.ClustersPerSubscription,
		Health:                  p.OpsHandler(),
		Healthy:                 readiness.Ready,
		Log:                     p.Log,
		Refused:                 refused.Refused,
		Metrics:                 p.Metrics,
	})
	authorizer := mesh.NewAuthorizer(mesh.Frontend, mesh.Rules(), p.Log).WithRefusals(refused.Call)
	httpServer := process.NewHTTPServer(process.Calls, authorizer.HandlerFor(transport, handler, handler.Pattern), p.Log)
	// The API responds to "OPTIONS *" like to any other path.
	httpServer.DisableGeneralOptionsHandler = true

	workers, stopWorkers := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { dispatcher.Run(workers) })
	wg.Go(func() { schema.await(workers, p.Log) })
	wg.Go(func() { keepFresh(workers) })
	wg.Go(func() { readiness.Watch(workers) })
	defer wg.Wait()
	defer stopWorkers()

	p.Log.InfoContext(ctx, "serving the ARM resource provider", logkey.Address, listener.Addr().String(), logkey.Location, options.Location)
	return process.ServeHTTP(ctx, httpServer, authorizer.Listener(transport, listener), shutdownTimeout)
}

// loadKeys reads a keyset. Without a file it generates a key that exists only in this process; data
// names what nothing can decrypt after a restart.
func loadKeys(name, path, data string, log *slog.Logger) (*seal.Keys, error) {
	if path == "" {
		log.Warn("using a generated key; other replicas and the next process cannot decrypt its data", logkey.Name, "--"+name, logkey.Kind, data)
		return seal.New()
	}
	keys, err := seal.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	return keys, nil
}

// schema checks the database containers. The process is not ready before they exist and it may read them.
type schema struct {
	db *database.DB

	mu      sync.Mutex
	checked bool
	err     error
}

// The pauses after failed checks of the containers.
const (
	firstCheckPause = 250 * time.Millisecond
	lastCheckPause  = time.Second
)

func (s *schema) await(ctx context.Context, log *slog.Logger) {
	pauses := backoff.New(firstCheckPause, lastCheckPause)
	for {
		err := s.db.CheckSchema(ctx)
		s.mu.Lock()
		s.checked, s.err = err == nil, err
		s.mu.Unlock()
		if err == nil {
			return
		}
		log.WarnContext(ctx, "cannot read the Cosmos DB containers; retrying", logkey.Error, err)
		if pauses.Wait(ctx) != nil {
			return
		}
	}
}

func (s *schema) ready(ctx context.Context) error {
	s.mu.Lock()
	checked, err := s.checked, s.err
	s.mu.Unlock()
	if !checked {
		if err == nil {
			err = errors.New("connecting")
		}
		return err
	}
	return s.db.Ping(ctx)
}
