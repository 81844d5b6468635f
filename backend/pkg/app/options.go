package app

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/backend/pkg/notification"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deadline"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Options are the flags of the backend.
type Options struct {
	Process  process.Options
	Database database.Options
	Tracing  tracing.Options
	// ClusterServiceAddress is host:port, IdentityDir the folder of this process's SPIFFE identity.
	ClusterServiceAddress string
	IdentityDir           string
	// Replica names this process among those that share the work.
	Replica string
	// Workers is how many resources are worked on at once.
	Workers int
	Timing  lifecycle.Timing
	// CascadeDeletions is how many clusters of deleted subscriptions are being deleted at once.
	CascadeDeletions int
	Notification     notification.Options
	Reconcile        reconcile.Options
	// FeedBusy and FeedIdle bound how often the change feed is asked; Resync is the safety net's period.
	FeedBusy, FeedIdle time.Duration
	Resync             time.Duration
	// LeaseDuration is after what silence another replica takes over.
	LeaseDuration time.Duration

	// traces is made of Tracing by Run; nil records nothing.
	traces *tracing.Tracing
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Process.AddFlags(flags)
	o.Database.AddFlags(flags)
	o.Tracing.AddFlags(flags)
	host, _ := os.Hostname()
	flags.StringVar(&o.ClusterServiceAddress, "cluster-service-address", "", "`host:port` of Cluster Service's gRPC")
	flags.StringVar(&o.IdentityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt of this process's SPIFFE identity")
	flags.StringVar(&o.Replica, "replica", host, "`name` of this replica; one that starts again under its name takes its work back at once")
	flags.IntVar(&o.Workers, "workers", 16, "`number` of resources worked on at once, 1 to 256")
	flags.IntVar(&o.CascadeDeletions, "cascade-deletions", 200, "most `number` of clusters of deleted subscriptions that are being deleted at once, 1 to 10000")
	o.Notification.Policy.AddFlags(flags)
	flags.DurationVar(&o.Timing.Grace, "fast-path-grace", 500*time.Millisecond, "how long the frontend has to send a request to Cluster Service before the backend does")
	flags.DurationVar(&o.Timing.Coalesce, "progress-interval", time.Second, "how often the progress of one resource is written at most")
	flags.DurationVar(&o.Timing.CreateDeadline, "create-deadline", deadline.Create, "after what time a create or update fails")
	flags.DurationVar(&o.Timing.DeleteDeadline, "delete-deadline", deadline.Delete, "after what time a delete fails")
	flags.DurationVar(&o.FeedBusy, "feed-busy-interval", 25*time.Millisecond, "how soon the change feed is asked again while it has changes")
	flags.DurationVar(&o.FeedIdle, "feed-idle-interval", time.Second, "how long the change feed is left alone at most")
	flags.DurationVar(&o.Resync, "resync", 10*time.Minute, "how often all that is under way is looked at as a safety net")
	flags.DurationVar(&o.Reconcile.Interval, "reconcile-interval", 24*time.Hour, "how often what customers were promised is compared with the fleet without a cause")
	flags.BoolVar(&o.Reconcile.ReportOnly, "reconcile-report-only", false, "send nothing again that the fleet lost before an SRE asks for it: for after Cosmos DB was restored to an earlier state")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 6*time.Second, "after what silence of a replica another takes over its work")
}

// Validate names the first flag that is missing or wrong.
func (o *Options) Validate() error {
	if err := o.Database.Validate(); err != nil {
		return err
	}
	if err := o.Tracing.Validate(); err != nil {
		return err
	}
	switch {
	case o.ClusterServiceAddress == "":
		return errors.New("--cluster-service-address is required")
	case o.IdentityDir == "":
		return errors.New("--identity-dir is required")
	case o.Replica == "":
		return errors.New("--replica is required: this machine's name is not known")
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
			return fmt.Errorf("--%s: %s is not more than 0", flag.name, flag.value)
		}
	}
	if o.LeaseDuration < time.Second {
		return fmt.Errorf("--lease-duration: %s is less than 1s", o.LeaseDuration)
	}
	return nil
}
