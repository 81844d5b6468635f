package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/updategraph"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

const (
	// ringSize is the number of changes that are stored in memory for watchers.
	ringSize       = 4096
	databaseRetry  = 500 * time.Millisecond
	shutdownPeriod = 5 * time.Second
)

// Run runs Cluster Service until ctx is done.
func Run(ctx context.Context, p *process.Process, o *Options) error {
	in, err := o.read()
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(in.transport.Collectors()...)
	database, err := store.Open(store.Options{URL: in.databaseURL, Authentication: in.authentication, MaxConnections: int32(o.MaxConnections), Log: p.Log})
	if err != nil {
		return err
	}
	defer database.Close()
	hub := store.NewWatchHub(database, ringSize, p.Log)

	transport := in.transport.ClientCredentials(mesh.MaestroServer)
	if o.MaestroPlain {
		transport = nil
	}
	client, err := maestro.NewClient(o.Maestro, fleet.Source, transport, p.Log)
	if err != nil {
		return err
	}
	defer client.Close()
	p.Ready("maestro", client.Ready)
	migrated := make(chan struct{})
	p.Ready("postgresql", func(ctx context.Context) error {
		select {
		case <-migrated:
			return database.Ping(ctx)
		default:
			return errors.New("the schema is not up to date yet")
		}
	})

	traces, err := tracing.New(ctx, p.Name, o.Tracing, p.Metrics)
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer traces.Flush(ctx)
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	if err := prepare(ctx, p.Log, database, in.shards, o.Migrate); err != nil {
		return err
	}
	close(migrated)

	records, err := o.Audit.Recorder(ctx, "cluster-service", p.Log, p.Metrics)
	if err != nil {
		return err
	}
	recording, stopRecords := context.WithCancel(context.WithoutCancel(ctx))
	var recorded sync.WaitGroup
	recorded.Go(func() { records.Run(recording) })
	// The writer ends after everything that it records.
	defer recorded.Wait()
	defer stopRecords()
	auditor := service.NewCallAuditor(records)
	auditing, stopAuditor := context.WithCancel(context.WithoutCancel(ctx))
	var audited sync.WaitGroup
	audited.Go(func() { auditor.Run(auditing) })
	// The auditor ends after the last call.
	defer audited.Wait()
	defer stopAuditor()

	releases := updategraph.New(updategraph.Options{URL: strings.TrimSuffix(o.UpdateGraph, "/"), Client: in.graphs, Store: database, Catalog: in.releases, Signatures: in.signatures, Metrics: p.Metrics, Log: p.Log})
	system := NewSystem(SystemOptions{Store: database, Hub: hub, Maestro: client, Renderer: in.renderer, Releases: releases, Keeper: in.keeper,
		SigningKeys: signingkey.NewPool(o.SigningKeys, signingkey.Generate), Publishers: o.Publishers, Renewals: o.Renewals, UpgradeLimit: o.UpgradeLimit, ResealAgain: o.ResealAgain, Metrics: p.Metrics, Traces: traces, Log: p.Log, Records: records, Azure: in.azure})
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group.Go(func() { cancel(system.Run(ctx)) })
	p.Metrics.MustRegister(keyfile.Collector("secrets-key-file", in.keeper.Ring))
	follower := newSettingsFollower(o, in.keeper, in.renderer, system.SettingsChanged, system.SealingKeysChanged, p.Metrics, p.Log)
	group.Go(func() { follower.run(ctx) })
	intents := intent.NewRegionVerifier(in.transport, o.IntentKeysURL)
	group.Go(func() { intents.Run(ctx) })
	calls := grpcserver.NewMetrics(p.Metrics)
	server := NewServer(in.transport, system.API, intents, auditor, p.Log, calls, traces.ServerOption(), grpcserver.EndStreams(ctx))
	return serve(ctx, p.Log, listener, server)
}

// prepare stores the configured shards in a database that it migrates, or that the command migrate has migrated. It waits until the
// database is reachable and up to date.
func prepare(ctx context.Context, log *slog.Logger, database *store.Store, shards []config.Shard, migrate bool) error {
	schema := database.CheckMigrated
	if migrate {
		schema = database.Migrate
	}
	for said := false; ; {
		err := schema(ctx)
		if err == nil {
			err = database.ConfigureShards(ctx, shards)
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !store.IsUnavailable(err) && !postgres.IsOutdated(err) {
			return fmt.Errorf("preparing the database: %w", err)
		}
		if !said {
			log.Warn("waiting for the database", logkey.Error, err)
			said = true
		}
		if err := backoff.Sleep(ctx, databaseRetry); err != nil {
			return err
		}
	}
}

// maxRequest bounds a request. The largest is a cluster, whose document in Cosmos DB has at most 2 MB.
const maxRequest = 4 << 20

// NewServer returns the gRPC server of an API. It authorizes each call by the rules of package mesh, verifies the intents of
// engineers, logs refused calls, records them and the calls of engineers in the audit, and counts all calls.
func NewServer(transport mesh.Transport, api csv1.ClusterServiceServer, intents mesh.IntentVerifier, auditor *service.CallAuditor, log *slog.Logger, calls *grpcserver.Metrics, options ...grpc.ServerOption) *grpc.Server {
	authorizer := mesh.NewAuthorizer(mesh.ClusterService, mesh.Rules(), log).WithIntents(intents).WithRefusals(auditor.Refused)
	server := grpcserver.New(slices.Concat(calls.ServerOptions(), authorizer.ServerOptions(transport), []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(auditor.Unary, service.RejectInvalidValues, service.Calls),
		grpc.MaxRecvMsgSize(maxRequest),
	}, options)...)
	csv1.RegisterClusterServiceServer(server, api)
	grpcserver.RegisterHealth(server)
	calls.Initialize(server)
	return server
}

func serve(ctx context.Context, log *slog.Logger, listener net.Listener, server *grpc.Server) error {
	log.Info("serving the API", logkey.Address, listener.Addr().String())
	if err := grpcserver.Serve(ctx, server, listener, shutdownPeriod); err != nil {
		return fmt.Errorf("the API: %w", err)
	}
	return context.Cause(ctx)
}
