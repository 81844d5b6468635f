package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/dispatch"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/skiptoken"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// shutdownTimeout bounds how long requests under way may take once the process was asked to stop.
const shutdownTimeout = 10 * time.Second

// The collector's pace: what lives is a few megabytes.
const (
	gcPercent   = 800
	memoryLimit = 384 << 20
)

// Run serves until ctx ends, and returns when everything it started has ended.
func Run(ctx context.Context, p *process.Process, options Options) error {
	process.PaceCollector(gcPercent, memoryLimit)
	listener, err := net.Listen("tcp", options.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	return Serve(ctx, p, options, listener)
}

// Serve is Run on a listener, which it closes.
func Serve(ctx context.Context, p *process.Process, options Options, listener net.Listener) error {
	defer func() { _ = listener.Close() }()
	offer, err := config.Load(options.ConfigFile, options.ReleaseCatalog)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	tokenKeys, err := loadKeys("skip-token-key-file", options.SkipTokenKeyFile, "skip tokens", p.Log)
	if err != nil {
		return err
	}
	credentialKeys, err := loadKeys("credential-key-file", options.CredentialKeyFile, "private keys of admin credentials that were not handed out", p.Log)
	if err != nil {
		return err
	}
	identity, err := mesh.LoadIdentity(options.IdentityDir)
	if err != nil {
		return fmt.Errorf("--identity-dir: %w", err)
	}
	db, err := database.Open(ctx, options.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	traces, err := tracing.New(ctx, p.Name, options.Tracing)
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer traces.Flush(ctx, shutdownTimeout)
	connection, err := clusterservice.Dial(ctx, options.ClusterServiceAddress, identity, traces.DialOption())
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()

	authenticator, keepFresh, err := options.Authentication.Authenticator(p.Log)
	if err != nil {
		return err
	}
	if authenticator != nil {
		p.Ready("authentication", authenticator.Ready)
	}

	schema := &schema{db: db}
	p.Ready("cosmos-db", schema.ready)
	// Cluster Service is not a dependency of answering ARM: what it is not told now, the backend tells it later.
	clusterService := clusterservice.NewClient(connection)
	dispatcher := dispatch.New(clusterService, p.Log, p.Metrics)
	handler := server.New(server.Config{
		Database:      db,
		Dispatcher:    dispatcher,
		Credentials:   clusterService,
		Rules:         validation.NewRules(offer, options.Location),
		Offer:         offer,
		SkipTokens:    skiptoken.New(tokenKeys),
		Sealer:        credentialKeys,
		Authenticator: authenticator,
		Tracing:       traces,
		Notifications: options.Notifications,
		Location:      options.Location,
		Health:        p.OpsHandler(),
		Healthy:       func(ctx context.Context) bool { return p.CheckReadiness(ctx).Ready },
		Log:           p.Log,
		Metrics:       p.Metrics,
	})
	httpServer := &http.Server{
		Handler:           handler,
		TLSConfig:         identity.ServerTLS(mesh.AllowedClients(mesh.Frontend)...),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       120 * time.Second,
		MaxHeaderBytes:    64 << 10,
		// OPTIONS * is a path like any other.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
	}

	workers, stopWorkers := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { dispatcher.Run(workers) })
	wg.Go(func() { schema.ensure(workers, p.Log) })
	wg.Go(func() { keepFresh(workers) })
	defer wg.Wait()
	defer stopWorkers()

	p.Log.Info("serving the ARM resource provider", "address", listener.Addr().String(), "location", options.Location)
	return process.ServeHTTP(ctx, httpServer, listener, shutdownTimeout)
}

// loadKeys reads a key file, or makes a key that ends with the process when there is none; what is then lost is lost.
func loadKeys(name, path, lost string, log *slog.Logger) (*seal.Keys, error) {
	if path == "" {
		log.Warn("without --"+name+" a restart, or another replica, cannot go on with what was sealed", "lost", lost)
		return seal.New()
	}
	keys, err := seal.Load(path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", name, err)
	}
	return keys, nil
}

// schema makes sure that the containers exist, before the process says that it is ready.
type schema struct {
	db *database.DB

	mu      sync.Mutex
	ensured bool
	err     error
}

// ensureAfter is how long to wait after a failure.
const ensureAfter = 500 * time.Millisecond

func (s *schema) ensure(ctx context.Context, log *slog.Logger) {
	for {
		err := s.db.EnsureSchema(ctx)
		s.mu.Lock()
		s.ensured, s.err = err == nil, err
		s.mu.Unlock()
		if err == nil {
			return
		}
		log.Warn("the containers of Cosmos DB are not there yet", "error", err)
		timer := time.NewTimer(ensureAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (s *schema) ready(ctx context.Context) error {
	s.mu.Lock()
	ensured, err := s.ensured, s.err
	s.mu.Unlock()
	if !ensured {
		if err == nil {
			err = errors.New("connecting")
		}
		return err
	}
	return s.db.Ping(ctx)
}
