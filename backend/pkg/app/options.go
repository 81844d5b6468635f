package app

import (
	"cmp"
	"context"
	"flag"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/notification"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Options are the options of the backend.
type Options struct {
	Database database.Options
	Tracing  tracing.Options
	Audit    writer.Options
	Mesh     mesh.Options
	// ClusterServiceAddress is host:port.
	ClusterServiceAddress string
	// IntentKeysURL is where admin publishes the keys with which it signs what engineers ask for.
	IntentKeysURL string
	// Replica names this process among the replicas.
	Replica string
	// Workers is how many resources are processed at a time.
	Workers int
	Timing  decision.Timing
	// CascadeDeletions is how many clusters of deleted subscriptions are deleted at a time.
	CascadeDeletions int
	Notification     notification.Options
	Reconcile        reconcile.Options
	// FeedBusy and FeedIdle bound the pause between polls of the change feed. Resync is the interval of periodic
	// resyncs.
	FeedBusy, FeedIdle time.Duration
	Resync             time.Duration
	// LeaseDuration is how long after the last heartbeat another replica acquires a group.
	LeaseDuration time.Duration

	// Records stores audit records. Run creates it from Audit.
	Records audit.Recorder
	// traces is created by Run from Tracing; nil records no spans.
	traces *tracing.Tracing
}

// AddFlags registers the flags of the options.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	o.Tracing.AddFlags(flags)
	o.Audit.AddFlags(flags)
	host, _ := os.Hostname()
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service's gRPC API")
	o.Mesh.AddFlags(flags)
	flags.StringVar(&o.IntentKeysURL, "intent-keys-url", "", "`URL` of the keys with which admin signs what engineers ask for, for example https://admin:8444/admin/v1/intent-keys; http with --sidecar-identity")
	flags.StringVar(&o.Replica, "replica", host, "unique `name` of this replica; a restarted replica with the same name acquires its groups at once")
	flags.IntVar(&o.Workers, "workers", 16, "`number` of resources to process at a time, 1 to 256")
	flags.IntVar(&o.CascadeDeletions, "cascade-deletions", 200, "maximum `number` of clusters of deleted subscriptions to delete at a time, 1 to 10000")
	o.Notification.Policy.AddFlags(flags)
	flags.DurationVar(&o.Timing.Grace, "fast-path-grace", 500*time.Millisecond, "time that the frontend has to send a request to Cluster Service before the backend sends it")
	flags.DurationVar(&o.Timing.Coalesce, "progress-interval", time.Second, "shortest time between two writes of a resource's progress")
	flags.DurationVar(&o.Timing.CreateDeadline, "create-deadline", asyncoperation.CreateDeadline, "time after which a create or update fails")
	flags.DurationVar(&o.Timing.DeleteDeadline, "delete-deadline", asyncoperation.DeleteDeadline, "time after which a delete fails")
	flags.DurationVar(&o.FeedBusy, "feed-busy-interval", 25*time.Millisecond, "pause between polls of the change feed while it has changes")
	flags.DurationVar(&o.FeedIdle, "feed-idle-interval", time.Second, "longest pause between polls of the change feed")
	flags.DurationVar(&o.Resync, "resync", 10*time.Minute, "interval of periodic resyncs of all active operations")
	flags.DurationVar(&o.Reconcile.Interval, "reconcile-interval", 24*time.Hour, "interval of comparisons between Cosmos DB and the fleet")
	flags.BoolVar(&o.Reconcile.ReportOnly, "reconcile-report-only", false, "only report drift until an SRE requests a repair; use it after Cosmos DB was restored to an earlier state")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 6*time.Second, "time after a replica's last heartbeat when other replicas acquire its groups")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Options) Validate() error {
	return cmp.Or(
		o.Database.Validate(), o.Tracing.Validate(), o.Audit.Validate(), o.Mesh.Validate(),
		process.Named("intent-keys-url", o.Mesh.CheckURL(o.IntentKeysURL)),
		process.Required("cluster-service-address", o.ClusterServiceAddress),
		process.Required("replica", o.Replica),
		process.Between("workers", o.Workers, 1, 256),
		process.Between("cascade-deletions", o.CascadeDeletions, 1, 10_000),
		process.AtLeast("fast-path-grace", o.Timing.Grace, 1),
		process.AtLeast("progress-interval", o.Timing.Coalesce, 1),
		process.AtLeast("create-deadline", o.Timing.CreateDeadline, 1),
		process.AtLeast("delete-deadline", o.Timing.DeleteDeadline, 1),
		process.AtLeast("feed-busy-interval", o.FeedBusy, 1),
		process.AtLeast("feed-idle-interval", o.FeedIdle, 1),
		process.AtLeast("resync", o.Resync, 1),
		process.AtLeast("reconcile-interval", o.Reconcile.Interval, 1),
		process.AtLeast("lease-duration", o.LeaseDuration, time.Second),
	)
}

// Main is the program backend. It reads the arguments of the process.
func Main() {
	var options Options
	process.Main("backend", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}
