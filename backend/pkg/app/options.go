package app

import (
	"errors"
	"flag"
	"fmt"
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
	Process  process.Options
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
	o.Process.AddFlags(flags)
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
	if err := o.Database.Validate(); err != nil {
		return err
	}
	if err := o.Tracing.Validate(); err != nil {
		return err
	}
	if err := o.Audit.Validate(); err != nil {
		return err
	}
	if err := o.Mesh.Validate(); err != nil {
		return err
	}
	if err := o.Mesh.CheckURL(o.IntentKeysURL); err != nil {
		return fmt.Errorf("--intent-keys-url: %w", err)
	}
	switch {
	case o.ClusterServiceAddress == "":
		return errors.New("--cluster-service-address is required")
	case o.Replica == "":
		return errors.New("--replica is required: the host name is unknown")
	case o.Workers < 1 || o.Workers > 256:
		return fmt.Errorf("--workers: %d is not 1 to 256", o.Workers)
	case o.CascadeDeletions < 1 || o.CascadeDeletions > 10_000:
		return fmt.Errorf("--cascade-deletions: %d is not 1 to 10000", o.CascadeDeletions)
	}
	for _, flag := range []struct {
		name  string
		value time.Duration
	}{
		{"fast-path-grace", o.Timing.Grace}, {"progress-interval", o.Timing.Coalesce}, {"create-deadline", o.Timing.CreateDeadline},
		{"delete-deadline", o.Timing.DeleteDeadline}, {"feed-busy-interval", o.FeedBusy}, {"feed-idle-interval", o.FeedIdle}, {"resync", o.Resync},
		{"reconcile-interval", o.Reconcile.Interval},
	} {
		if flag.value <= 0 {
			return fmt.Errorf("--%s: %s is not greater than 0", flag.name, flag.value)
		}
	}
	if o.LeaseDuration < time.Second {
		return fmt.Errorf("--lease-duration: %s is less than 1s", o.LeaseDuration)
	}
	return nil
}
