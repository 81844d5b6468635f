// Package app wires the backend, which brings every accepted operation to a terminal state. Operations come from Cosmos
// DB's change feed (package controller), reports from Cluster Service's watch. Both arrive in package eventqueue, and
// package lifecycle processes them. Package cascade deletes the clusters of deleted subscriptions, package reconcile
// repairs drift, package notification notifies callers, and package adminoperation executes the actions of SREs.
// Replicas share the subscriptions by leases.
//
// The process keeps no state that it cannot restore. It may be killed at any time; the next process or another replica
// continues.
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
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/backend/pkg/notification"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/backend/pkg/resourcecount"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// schemaRetry is the pause before prepareDatabase tries again.
const schemaRetry = time.Second

// Run connects to Cosmos DB and Cluster Service and works until ctx ends.
func Run(ctx context.Context, p *process.Process, options Options) error {
	transport, err := options.Mesh.Load(mesh.Backend)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(transport.Collectors()...)
	if options.traces, err = tracing.New(ctx, p.Name, options.Tracing, p.Metrics); err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer options.traces.Flush(ctx)
	connection, err := clusterservice.Dial(ctx, options.ClusterServiceAddress, transport, options.traces.DialOption())
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
	records, err := options.Audit.Recorder(ctx, "backend", p.Log, p.Metrics)
	if err != nil {
		return err
	}
	options.Records = records
	// The writer ends after everything that it records.
	recording, stopRecords := context.WithCancel(context.WithoutCancel(ctx))
	var recorded sync.WaitGroup
	recorded.Go(func() { records.Run(recording) })
	defer recorded.Wait()
	defer stopRecords()
	intents := intent.NewRegionVerifier(transport, options.IntentKeysURL)
	fetching, stop := context.WithCancel(ctx)
	var fetched sync.WaitGroup
	fetched.Go(func() { intents.Run(fetching) })
	defer fetched.Wait()
	defer stop()
	return Work(ctx, p, db, connection, intents, options)
}

// Work works with existing connections until ctx ends. Tests call it directly.
func Work(ctx context.Context, p *process.Process, db *database.DB, connection grpc.ClientConnInterface, intents adminoperation.IntentVerifier, options Options) error {
	var schema atomic.Bool
	p.Ready("cosmos", func(ctx context.Context) error {
		if !schema.Load() {
			return errors.New("the containers of the database have not been read yet")
		}
		return db.Ping(ctx)
	})
	if err := prepareDatabase(ctx, p, db); err != nil {
		return err
	}
	schema.Store(true)

	if options.traces == nil {
		options.traces = tracing.Off()
	}
	queue := eventqueue.New()
	owner := controller.NewOwner(options.Replica, options.LeaseDuration, p.Log)
	clusterService, rpc := clusterservice.NewClient(connection), clusterservicev1.NewClusterServiceClient(connection)
	finder := eventqueue.NewOperationFinder(db, owner.Owns, queue, p.Log)
	lifecycles := lifecycle.New(db, clusterService, queue, owner.Owns, options.Timing, lifecycle.NewMetrics(p.Metrics), options.traces, p.Log)
	reconciler := reconcile.New(db, rpc, lifecycles, owner.Owns, options.Reconcile, p.Metrics, p.Log)
	follower := eventqueue.NewReportFollower(clusterService, owner, queue, finder.MarkStale, reconciler, p.Log)
	deletions := cascade.New(db, owner.Owns, options.CascadeDeletions, p.Metrics, p.Log)
	resources := resourcecount.New(db, owner.Owns, p.Metrics)
	notifications := notification.New(db, owner.Owns, options.Notification, p.Metrics, p.Log)
	adminOperations := adminoperation.New(db, rpc, reconciler, intents, owner.Owns, adminoperation.Options{Audit: options.Records}, p.Metrics, p.Log)
	feed := controller.NewDispatcher(db, owner.Owns, database.FeedOptions{BusyInterval: options.FeedBusy, IdleInterval: options.FeedIdle, Log: p.Log}, options.Resync, p.Log,
		finder, deletions, notifications, resources, adminOperations)
	owner.Subscribe(
		func(g controller.Group) { follower.GroupAcquired(g); feed.GroupAcquired(g) },
		func(g controller.Group) { follower.GroupLost(g); resources.GroupLost(g); reconciler.GroupLost(g) },
	)
	registerMetrics(p.Metrics, queue, owner)

	p.Log.InfoContext(ctx, "started", logkey.Replica, options.Replica)
	var wg sync.WaitGroup
	wg.Go(func() { feed.Follow(ctx, time.Now()) })
	wg.Go(func() { feed.RunResync(ctx) })
	wg.Go(func() { follower.Run(ctx) })
	wg.Go(func() { reconciler.Run(ctx) })
	wg.Go(func() { deletions.Run(ctx) })
	wg.Go(func() { notifications.Run(ctx) })
	wg.Go(func() { adminOperations.Run(ctx) })
	wg.Go(func() { lifecycles.Run(ctx, max(options.Workers, 1)) })
	// The leases are released last, so that no other replica starts before this one has written everything.
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

// prepareDatabase checks that the containers exist and moves the documents of earlier releases. It retries until it succeeds.
// Meanwhile /readyz reports that Cosmos DB is missing.
func prepareDatabase(ctx context.Context, p *process.Process, db *database.DB) error {
	for {
		err := db.CheckSchema(ctx)
		if err == nil {
			err = db.MoveAdminRecords(ctx, p.Log)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		p.Log.WarnContext(ctx, "preparing the database failed; retrying", logkey.Error, err)
		if err := backoff.Sleep(ctx, schemaRetry); err != nil {
			return err
		}
	}
}

func registerMetrics(registry prometheus.Registerer, queue *eventqueue.Queue, owner *controller.Owner) {
	gauge := func(options prometheus.GaugeOpts, value func() int) {
		registry.MustRegister(prometheus.NewGaugeFunc(options, func() float64 { return float64(value()) }))
	}
	registry.MustRegister(eventqueue.NewCollector(queue, time.Now))
	gauge(prometheus.GaugeOpts{Name: "backend_resources_in_progress", Help: "Resources with open events or operations."}, queue.Len)
	gauge(prometheus.GaugeOpts{Name: "backend_resources_queued", Help: "Resources that wait to be processed."}, queue.Ready)
	gauge(prometheus.GaugeOpts{Name: "backend_groups_owned", Help: "Groups of subscriptions that this replica owns."}, owner.Owned)
}
