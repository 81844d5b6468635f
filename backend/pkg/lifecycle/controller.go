// Package lifecycle brings every accepted operation to a terminal state. For each event of a resource it reads the resource
// and its operation, gets the next action from package decision, and executes it: it sends the desired state or the deletion
// to Cluster Service, which the frontend has usually done already; it writes the reported status; it ends the operation
// together with its resource in one transaction; or it removes the resource with its dependents.
//
// Clusters, node pools and external authentications share resource.go; cluster.go, nodepool.go and externalauth.go contain
// what differs. Credentials and revocations are one-shot operations (oneshot.go). resend.go repairs drift for package
// reconcile, and deletion.go finds stuck deletions. Every step may be repeated, and may be the last before a crash: the next
// action follows from stored documents and reports of Cluster Service alone.
package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// callTimeout bounds one call of Cluster Service, processTimeout the whole processing of a resource.
const (
	callTimeout    = 10 * time.Second
	processTimeout = time.Minute
)

// missingResourceGrace is how old an operation must be before the absence of its resource is final.
const missingResourceGrace = 30 * time.Second

// Controller processes the resources of the event queue. It never processes a resource twice at the same time.
type Controller struct {
	db             *database.DB
	clusterService *clusterservice.Client
	queue          *eventqueue.Queue
	owns           func(controller.Group) bool
	timing         decision.Timing
	log            *slog.Logger
	metrics        *Metrics
	traces         *tracing.Tracing

	clusters      *kind[database.ClusterDocument]
	nodePools     *kind[database.NodePoolDocument]
	externalAuths *kind[database.ExternalAuthDocument]
	// reconcilers process the resources of each kind.
	reconcilers map[database.Kind]reconciler

	mu sync.Mutex
	// cascades holds the clusters whose children are all marked for deletion.
	cascades map[eventqueue.Resource]cascadeState
	// deletions holds the state of running deletions.
	deletions map[eventqueue.Resource]deletionState
}

// reconciler acts for a resource until it can only wait.
type reconciler interface {
	reconcile(ctx context.Context, r eventqueue.Resource) error
}

// New returns a Controller for the resources of owned groups.
func New(db *database.DB, clusterService *clusterservice.Client, queue *eventqueue.Queue, owns func(controller.Group) bool, timing decision.Timing, metrics *Metrics, traces *tracing.Tracing, log *slog.Logger) *Controller {
	c := &Controller{
		db: db, clusterService: clusterService, queue: queue, owns: owns, timing: timing.WithDefaults(), log: log, metrics: metrics, traces: traces,
		cascades: map[eventqueue.Resource]cascadeState{}, deletions: map[eventqueue.Resource]deletionState{},
	}
	c.clusters, c.nodePools, c.externalAuths = clusterKind(c), nodePoolKind(c), externalAuthKind(c)
	c.reconcilers = map[database.Kind]reconciler{
		database.ClusterKind: c.clusters, database.NodePoolKind: c.nodePools, database.ExternalAuthKind: c.externalAuths,
		database.CredentialKind: credentialOneShot(c), eventqueue.Revocation: revocationOneShot(c),
	}
	return c
}

// Run processes up to workers resources at a time until ctx ends.
func (c *Controller) Run(ctx context.Context, workers int) {
	controller.RunWorkers(ctx, c.queue, workers, c.process)
}

func (c *Controller) process(ctx context.Context, r eventqueue.Resource) {
	if ctx.Err() != nil {
		return
	}
	if !c.owns(r.Group()) {
		c.forgetDeletion(r)
		c.queue.Forget(r)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	started := time.Now()
	handle := c.unknown
	if known := c.reconcilers[r.Kind()]; known != nil {
		handle = known.reconcile
	}
	err := handle(ctx, r)
	c.metrics.observeProcessing(time.Since(started), err)
	if err == nil {
		c.queue.Forget(r)
		return
	}
	// In an outage all resources are retried often. From the fourth retry on, those whose number is a power of two are
	// logged as warnings, and all others for debugging.
	retries := c.queue.NumRequeues(r)
	level := slog.LevelDebug
	if retries >= 4 && retries&(retries-1) == 0 && !errors.Is(err, context.Canceled) {
		level = slog.LevelWarn
	}
	c.log.Log(ctx, level, "processing a resource failed; retrying", logkey.ResourceID, string(r), logkey.Attempt, retries+1, logkey.Error, err)
	c.recordDeletionFailure(ctx, r, err, retries+1)
	c.queue.AddRateLimited(r)
}

// unknown discards the events of a resource type that this release does not support. A release that supports it finds
// the operations when it starts.
func (c *Controller) unknown(ctx context.Context, r eventqueue.Resource) error {
	event := c.queue.Peek(r)
	c.log.WarnContext(ctx, "discarding events of an unsupported resource type", logkey.ResourceID, string(r))
	for id := range event.Operations {
		c.queue.RemoveOperation(r, id)
	}
	c.queue.FinishRefresh(r, event.RefreshRequests)
	c.acknowledge(r, event)
	return nil
}

// operationEnded records the end of an operation: once for each operation that this replica has ended.
func (c *Controller) operationEnded(ctx context.Context, r eventqueue.Resource, operation *database.Item[database.OperationDocument]) {
	o := &operation.Value
	c.queue.RemoveOperation(r, o.OperationID)
	if o.Request == database.DeleteRequest {
		c.forgetDeletion(r)
	}
	took := time.Since(o.StartTime)
	c.metrics.observeOperation(o, took)
	c.recordSpan(ctx, o)
	attrs := []any{
		logkey.ResourceID, o.ResourceID, logkey.OperationID, o.OperationID, logkey.CorrelationID, o.CorrelationID,
		logkey.Kind, string(o.Request), logkey.Status, string(o.Status), logkey.Duration, took.Round(time.Millisecond).String(),
	}
	if o.Error != nil {
		attrs = append(attrs, logkey.Reason, o.Error.Code, logkey.Message, o.Error.Message)
	}
	c.log.InfoContext(ctx, "operation ended", attrs...)
}
