// Package app wires monitor. The list of clusters comes from Cluster Service's watch (package roster). Replicas share the clusters
// in groups by leases in Cosmos DB (package internal/partition), and each probes those of its groups (package observer).
//
// The process keeps no state that it cannot restore. It may be killed at any time; the next process or another replica
// continues, and a cluster is unknown until its next probe.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/journal"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/observer"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/roster"
)

// heapGrowth is how much the heap may grow before it is collected, in percent. Most of it are connections, which live long; the default
// of 100 would need twice their memory.
const heapGrowth = 30

// limitHeap sets heapGrowth unless the environment has another value.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}

// Run connects to Cosmos DB and Cluster Service and works until ctx ends.
func Run(ctx context.Context, p *process.Process, options Options) error {
	limitHeap()
	transport, err := options.Mesh.Load(mesh.Monitor)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(transport.Collectors()...)
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
	return Work(ctx, p, db, connection, options)
}

// Store shares the groups among replicas and keeps the states of clusters. *database.DB implements it.
type Store interface {
	partition.Leaser
	journal.Store
}

// Work works with existing connections until ctx ends. Tests call it directly.
func Work(ctx context.Context, p *process.Process, store Store, connection grpc.ClientConnInterface, options Options) error {
	addresses, err := options.addresses()
	if err != nil {
		return fmt.Errorf("--egress-addresses: %w", err)
	}
	prober := probe.New(probe.Options{Vantage: probe.Outside, Connections: options.Connections, Dial: options.dial})
	defer prober.Close()
	var clusters *roster.Roster
	records := journal.New(store, journal.Options{Replica: options.Replica, Synced: func() bool { return clusters.Synced() }, Log: p.Log, Metrics: p.Metrics})
	watch := observer.New(prober, observer.NewMetrics(p.Metrics), observer.Options{Journal: records, Interval: options.interval, Log: p.Log})
	clusters = roster.New(clusterservicev1.NewClusterServiceClient(connection), watch, roster.Options{Addresses: addresses, Log: p.Log})
	owner := partition.NewOwner(partition.Options{Service: "monitor", Groups: observer.Groups, Replica: options.Replica, Duration: options.LeaseDuration, Log: p.Log})
	owner.Subscribe(func(group partition.Group) {
		records.GroupAcquired(group)
		watch.GroupAcquired(group)
	}, func(group partition.Group) {
		watch.GroupLost(group)
		records.GroupLost(group)
	})
	p.Metrics.MustRegister(observer.NewCollector(watch))
	gauge := func(options prometheus.GaugeOpts, value func() int) {
		p.Metrics.MustRegister(prometheus.NewGaugeFunc(options, func() float64 { return float64(value()) }))
	}
	gauge(prometheus.GaugeOpts{Name: "monitor_groups", Help: "Groups into which the clusters of the region are divided."}, func() int { return observer.Groups })
	gauge(prometheus.GaugeOpts{Name: "monitor_groups_owned", Help: "Groups of clusters that this replica owns."}, owner.Owned)
	gauge(prometheus.GaugeOpts{Name: "monitor_clusters", Help: "Clusters of the region, as Cluster Service reports them."}, clusters.Len)
	gauge(prometheus.GaugeOpts{Name: "monitor_connections", Help: "Connections to API servers that are kept open."}, prober.Connections)
	p.Ready("cluster-service", clusters.Ready)
	p.Ready("leases", func(context.Context) error {
		if owner.Owned() == 0 {
			return errors.New("this replica owns no group of clusters yet")
		}
		return nil
	})

	p.Log.InfoContext(ctx, "started", logkey.Replica, options.Replica)
	var wg sync.WaitGroup
	wg.Go(func() { clusters.Run(ctx) })
	wg.Go(func() { watch.Run(ctx) })
	wg.Go(func() { records.Run(ctx, watch) })
	wg.Go(func() { _ = owner.Run(ctx, store) })
	wg.Go(func() {
		probe.CheckAnchors(ctx, probe.AnchorOptions{Addresses: options.anchors(), Report: watch.ObserveAnchor})
	})
	wg.Wait()
	return ctx.Err()
}
