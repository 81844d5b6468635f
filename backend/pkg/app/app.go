// Package backend is the process that makes every accepted operation terminal. It finds operations in Cosmos DB's change
// feed (packages changes and operations) and news of the fleet in Cluster Service's watch (package fleetwatch), which meet
// in the inbox; package lifecycle gives each resource its turn. Package cascade begins the deletions that a deleted
// subscription asks for, and package notification tells those who want to know that an operation has ended, and package intervention executes what SREs asked admin for. Replicas share the subscriptions by leases (package partition).
//
// It keeps nothing that it cannot find again: it may be killed at any instruction, and the next one, or another replica,
// goes on.
package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/backend/pkg/cascade"
	"github.com/hcpmesh/hcpmesh/backend/pkg/changefeed"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/backend/pkg/fleetwatch"
	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/backend/pkg/notification"
	"github.com/hcpmesh/hcpmesh/backend/pkg/operations"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/backend/pkg/resourcecount"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// schemaRetry is how long to wait for a Cosmos DB that does not answer before it is asked again.
const schemaRetry = time.Second

// flushTimeout is how long the last spans may take to be sent.
const flushTimeout = 3 * time.Second

// Run connects to Cosmos DB and Cluster Service and works until ctx ends.
func Run(ctx context.Context, p *process.Process, options Options) error {
	identity, err := mesh.LoadIdentity(options.IdentityDir)
	if err != nil {
		return fmt.Errorf("--identity-dir: %w", err)
	}
	if options.traces, err = tracing.New(ctx, p.Name, options.Tracing); err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer options.traces.Flush(ctx, flushTimeout)
	connection, err := clusterservice.Dial(ctx, options.ClusterServiceAddress, identity, options.traces.DialOption())
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	p.Ready("cluster-service", clusterservice.ReadinessCheck(connection))
	db, err := database.Open(ctx, options.Database)
	if err != nil {
		return err
	}
	defer db.Close()
	return Work(ctx, p, db, connection, options)
}

// Work works with connections that are made already; Options name the replica and its timing.
func Work(ctx context.Context, p *process.Process, db *database.DB, connection grpc.ClientConnInterface, options Options) error {
	var schema atomic.Bool
	p.Ready("cosmos", func(ctx context.Context) error {
		if !schema.Load() {
			return errors.New("the database's containers have not been made yet")
		}
		return db.Ping(ctx)
	})
	if err := ensureSchema(ctx, p, db); err != nil {
		return err
	}
	schema.Store(true)

	if options.traces == nil {
		options.traces = tracing.Off()
	}
	in := eventqueue.New()
	owner := partition.NewOwner(options.Replica, options.LeaseDuration, p.Log)
	clusterService, rpc := clusterservice.NewClient(connection), clusterservicev1.NewClusterServiceClient(connection)
	found := operations.NewFinder(db, owner.Owns, in, p.Log)
	controller := lifecycle.New(db, clusterService, in, owner.Owns, options.Timing, lifecycle.NewMetrics(p.Metrics), options.traces, p.Log)
	reconciler := reconcile.New(db, rpc, controller, owner.Owns, options.Reconcile, p.Metrics, p.Log)
	follower := fleetwatch.New(clusterService, owner, in, found.MarkStale, reconciler, p.Log)
	deletions := cascade.New(db, owner.Owns, options.CascadeDeletions, p.Metrics, p.Log)
	counted := resourcecount.New(db, owner.Owns, p.Metrics)
	notifications := notification.New(db, owner.Owns, options.Notification, p.Metrics, p.Log)
	interventions := adminoperation.New(db, rpc, reconciler, owner.Owns, adminoperation.Options{}, p.Metrics, p.Log)
	feed := changefeed.New(db, owner.Owns, database.FeedOptions{BusyInterval: options.FeedBusy, IdleInterval: options.FeedIdle, Log: p.Log}, options.Resync, p.Log,
		found, deletions, notifications, counted, interventions)
	owner.Subscribe(
		func(g partition.Group) { follower.GroupAcquired(g); feed.GroupAcquired(g) },
		func(g partition.Group) { follower.GroupLost(g); counted.GroupLost(g); reconciler.GroupLost(g) },
	)
	observe(p.Metrics, in, owner)

	p.Log.InfoContext(ctx, "working", "replica", options.Replica)
	var wg sync.WaitGroup
	wg.Go(func() { feed.Follow(ctx, time.Now()) })
	wg.Go(func() { feed.RunResync(ctx) })
	wg.Go(func() { follower.Run(ctx) })
	wg.Go(func() { reconciler.Run(ctx) })
	wg.Go(func() { deletions.Run(ctx) })
	wg.Go(func() { notifications.Run(ctx) })
	wg.Go(func() { interventions.Run(ctx) })
	wg.Go(func() { controller.Run(ctx, max(options.Workers, 1)) })
	// The leases are given back last: until then nobody else begins with what is still being written here.
	leasing, release := context.WithCancel(context.WithoutCancel(ctx))
	leased := make(chan struct{})
	go func() {
		defer close(leased)
		_ = owner.Run(leasing, db)
	}()
	wg.Wait()
	release()
	<-leased
	return ctx.Err()
}

// ensureSchema waits for Cosmos DB as long as it takes: the process says at /readyz what it waits for.
func ensureSchema(ctx context.Context, p *process.Process, db *database.DB) error {
	for {
		err := db.EnsureSchema(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		p.Log.WarnContext(ctx, "waiting for Cosmos DB", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(schemaRetry):
		}
	}
}

func observe(registry prometheus.Registerer, in *eventqueue.Queue, owner *partition.Owner) {
	for _, gauge := range []struct {
		name, help string
		value      func() int
	}{
		{"backend_resources_in_progress", "Resources that something is under way with.", in.Len},
		{"backend_resources_queued", "Resources that wait for their turn.", in.Ready},
		{"backend_groups_owned", "Groups of subscriptions that this replica works on.", owner.Owned},
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: gauge.name, Help: gauge.help}, func() float64 { return float64(gauge.value()) }))
	}
}
