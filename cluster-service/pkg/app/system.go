package app

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/accessaudit"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/azure"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/delivery"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/updategraph"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

const (
	// tombstoneLife is how long a late request can arrive: ARM operations expire after 7 days.
	tombstoneLife = 7 * 24 * time.Hour
	purgeInterval = time.Hour
	// azureWorkers is the number of clusters whose Azure resources are processed concurrently. It is small, because
	// creations take precedence.
	azureWorkers = 4
)

// SystemOptions are the parts and settings of a System. The database must be migrated.
type SystemOptions struct {
	Store       *store.Store
	Hub         *store.WatchHub
	Maestro     *maestro.Client
	Renderer    *render.Renderer
	Releases    *updategraph.Source
	Keeper      *seal.Keys
	SigningKeys *signingkey.Pool
	Publishers  int
	// Renewals is the number of clusters that receive a new rendering concurrently.
	Renewals int
	// ResealAgain is the pause before the second pass over the signing keys; see pass.NewResealer. 0 means the default.
	ResealAgain time.Duration
	Metrics     prometheus.Registerer
	// Log receives the log records of all workers; nil discards them.
	Log *slog.Logger
	// Traces creates the spans of the work for requests; nil creates none.
	Traces *tracing.Tracing
	// Audit receives the records of access to clusters; nil means Log.
	Audit *slog.Logger
	// Records stores these records in the audit chain; nil stores none.
	Records audit.Recorder
	// Azure tries the steps of clusters in Azure; nil in a region without Azure.
	Azure *azure.Steps
	// UpgradeLimit is the largest number of active upgrades of policies in the region; 0 means no limit.
	UpgradeLimit int
	// Sweep is the period of searches for orphans; 0 means the default.
	Sweep time.Duration
	// Agents is the period in which reports of agents are stored; 0 means the default.
	Agents time.Duration
	// Place and Upgrade are the periods of scans for clusters without a shard and for upgrades that may start, if no commit
	// wakes them sooner; 0 means the defaults.
	Place, Upgrade time.Duration
	// CheckDeletions is the maximum interval between checks of deletions; 0 means the default.
	CheckDeletions time.Duration
	// SearchAzure is the interval at which the database is read for due searches for orphans in Azure; 0 means the default.
	SearchAzure time.Duration
}

// System is Cluster Service without its listener.
type System struct {
	API *service.Service

	log       *slog.Logger
	store     *store.Store
	hub       *store.WatchHub
	publisher *delivery.Publisher
	placer    *pass.Placer
	receiver  *delivery.Receiver
	expirer   *pass.Expirer
	agents    *delivery.Agents
	awaited   *delivery.AwaitedActions
	renewer   *pass.Renewer
	resealer  *pass.Resealer
	deletions *pass.DeletionMonitor
	// azure and orphans are nil in a region without Azure.
	azure    *azure.Worker
	orphans  *azure.OrphanSearcher
	keys     *signingkey.Pool
	releases *updategraph.Source
	upgrader *pass.Upgrader
	audit    *accessaudit.Audit
	traces   *tracing.Tracing
}

// NewSystem connects the parts.
func NewSystem(o SystemOptions) *System {
	metrics := delivery.NewMetrics(o.Metrics)
	s := &System{store: o.Store, hub: o.Hub, releases: o.Releases, keys: o.SigningKeys}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Audit == nil {
		o.Audit = o.Log
	}
	if o.Traces == nil {
		o.Traces = tracing.Off()
	}
	s.log, s.traces = o.Log, o.Traces
	s.audit = accessaudit.New(o.Store, o.Records, o.Audit, o.Metrics)
	s.publisher = delivery.NewPublisher(delivery.PublisherOptions{Store: o.Store, Renderer: o.Renderer, Maestro: o.Maestro, Keeper: o.Keeper, Keys: s.keys,
		Workers: o.Publishers, Metrics: metrics, Traces: o.Traces, Log: o.Log})
	s.placer = pass.NewPlacer(pass.PlacerOptions{Store: o.Store, Renderer: o.Renderer, Interval: o.Place, Log: o.Log})
	s.agents = &delivery.Agents{Store: o.Store, Metrics: metrics, Interval: o.Agents, Log: o.Log}
	s.awaited = &delivery.AwaitedActions{Store: o.Store, Metrics: metrics, Interval: o.Agents, Log: o.Log}
	s.upgrader = pass.NewUpgrader(pass.UpgraderOptions{Store: o.Store, Renderer: o.Renderer, Catalog: o.Releases.Catalog, Limit: o.UpgradeLimit,
		Interval: o.Upgrade, Metrics: o.Metrics, Log: o.Log})
	s.receiver = delivery.NewReceiver(delivery.ReceiverOptions{Store: o.Store, Renderer: o.Renderer, Maestro: o.Maestro,
		AgentReported: s.agents.Reported, AgentHeartbeats: s.agents.Heartbeats, Metrics: metrics, Sweep: o.Sweep, Log: o.Log})
	s.expirer = &pass.Expirer{Store: o.Store, Renderer: o.Renderer, Log: o.Log}
	s.renewer = pass.NewRenewer(pass.RenewerOptions{Store: o.Store, Renderer: o.Renderer, Metrics: o.Metrics, AtOnce: o.Renewals, Log: o.Log})
	s.resealer = pass.NewResealer(o.Store, o.Keeper, cmp.Or(o.ResealAgain, pass.DefaultResealAgain), o.Metrics, o.Log)
	s.deletions = pass.NewDeletionMonitor(pass.DeletionMonitorOptions{Store: o.Store, Region: o.Renderer.Region, Maestro: o.Maestro,
		Metrics: o.Metrics, Interval: o.CheckDeletions, Log: o.Log})
	api := service.Options{Store: o.Store, Hub: o.Hub, Renderer: o.Renderer, Releases: o.Releases, Keeper: o.Keeper, SigningKeys: s.keys,
		DeleteBundle: o.Maestro.Delete, Log: o.Log}
	if o.Azure != nil {
		s.azure = azure.NewWorker(azure.WorkerOptions{Store: o.Store, Steps: o.Azure, Workers: azureWorkers, Renderer: o.Renderer, Metrics: o.Metrics, Log: o.Log})
		s.orphans = azure.NewOrphanSearcher(azure.OrphanSearcherOptions{Store: o.Store, Steps: o.Azure, Interval: o.SearchAzure, Metrics: o.Metrics, Log: o.Log})
		api.DeleteAzureOrphan = s.orphans.DeleteOrphan
	}
	s.API = service.New(api)
	o.Store.Subscribe(s.handleCommit)
	return s
}

// handleCommit passes what a committed transaction makes necessary or possible to the parts that act on it. It is the only
// place where commits and parts are connected. Each call is bounded and does not block.
func (s *System) handleCommit(ctx context.Context, e store.Event) {
	if e.Revision > 0 {
		s.hub.Wake(e.Revision)
	}
	s.publisher.Enqueue(e.WorksDue)
	if s.azure != nil {
		s.azure.Enqueue(e.AzureStepsDue)
	}
	if e.PlacementChanged {
		s.placer.Wake()
	}
	if e.UpgradesChanged {
		s.upgrader.Wake()
	}
	if e.DeletionsUnblocked {
		s.deletions.Wake()
	}
	s.audit.Record(ctx, e.Access)
	for _, w := range e.Waits {
		s.recordWait(ctx, w)
	}
}

// recordWait records a span of a wait in the trace of its request.
func (s *System) recordWait(ctx context.Context, w fleet.Wait) {
	attributes := []attribute.KeyValue{tracing.ResourceID.String(w.ResourceID), tracing.ClusterUID.String(w.ClusterUID)}
	if w.Work == "" {
		attributes = append(attributes, tracing.Status.String(w.State))
	} else {
		attributes = append(attributes, tracing.Condition.String(w.State), tracing.Work.String(w.Work), tracing.Consumer.String(w.Shard))
	}
	_, span := s.traces.Start(tracing.Continue(ctx, w.Trace), "await "+w.Layer+" "+w.State, trace.WithTimestamp(w.Begin), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(w.End))
}

// SettingsChanged makes the system follow changed settings of its renderer and changed limits of deletion steps. It does not
// block.
func (s *System) SettingsChanged() {
	s.renewer.Changed()
	s.deletions.LimitsChanged()
}

// SealingKeysChanged makes the system seal with the new primary key what another key sealed. It does not block.
func (s *System) SealingKeysChanged() { s.resealer.Changed() }

// Run runs the parts until ctx is done or one of them fails.
func (s *System) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for _, part := range []func(context.Context){s.hub.Run, func(ctx context.Context) { s.store.Listen(ctx, s.hub.Wake) }, s.publisher.Run,
		s.placer.Run, s.receiver.Run, s.expirer.Run, s.renewer.Run, s.resealer.Run, s.agents.Run, s.awaited.Run, s.deletions.Run, s.purge, s.releases.Run, s.upgrader.Run, s.audit.Run} {
		group.Go(func() { part(ctx) })
	}
	if s.azure != nil {
		group.Go(func() { s.azure.Run(ctx) })
		group.Go(func() { s.orphans.Run(ctx) })
	}
	group.Go(func() {
		if err := s.keys.Run(ctx); err != nil {
			cancel(err)
		}
	})
	group.Wait()
	return context.Cause(ctx)
}

// purge removes old tombstones periodically.
func (s *System) purge(ctx context.Context) {
	ticker := time.NewTicker(purgeInterval)
	defer ticker.Stop()
	for {
		if err := s.store.Purge(ctx, s.store.Now().Add(-tombstoneLife)); err != nil && ctx.Err() == nil {
			s.log.Warn("removing old tombstones failed", logkey.Error, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
