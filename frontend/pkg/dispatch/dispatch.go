// Package dispatch is the fast path to Cluster Service: once a change is committed, it is sent there at once, so that the
// fleet starts working while the customer still reads the answer.
//
// It is only ever a head start. The backend sends the same request for everything that is committed, so a change that is
// dropped here, because the queue is full, Cluster Service does not answer, or the process dies, is merely later. Nothing
// waits for the outcome, and none of it changes what the customer is told.
package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ClusterService is what a change is sent to.
type ClusterService interface {
	ApplyCluster(ctx context.Context, document *database.ClusterDocument) (clusterservice.Report, error)
	DeleteCluster(ctx context.Context, document *database.ClusterDocument) (clusterservice.Report, error)
	ApplyNodePool(ctx context.Context, document *database.NodePoolDocument) (clusterservice.Report, error)
	DeleteNodePool(ctx context.Context, document *database.NodePoolDocument) (clusterservice.Report, error)
	ApplyExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (clusterservice.Report, error)
	DeleteExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (clusterservice.Report, error)
}

// The bounds: how many changes wait, how many are sent at a time, and how long one may take.
const (
	queueLength = 1024
	workers     = 8
	deadline    = 3 * time.Second
)

// change is one committed change.
type change struct {
	resourceID, operationID, correlationID string
	trace                                  trace.SpanContext
	send                                   func(ctx context.Context) error
}

// Dispatcher sends committed changes. Its methods never block, and take of a context its trace and not its end.
type Dispatcher struct {
	clusterService ClusterService
	log            *slog.Logger
	queue          chan change
	sent           *prometheus.CounterVec
}

// New makes a Dispatcher; Run makes it work.
func New(clusterService ClusterService, log *slog.Logger, metrics prometheus.Registerer) *Dispatcher {
	d := &Dispatcher{
		clusterService: clusterService,
		log:            log,
		queue:          make(chan change, queueLength),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "frontend_dispatch_total",
			Help: "Committed changes by what became of sending them to Cluster Service at once: sent, failed or dropped.",
		}, []string{"result"}),
	}
	metrics.MustRegister(d.sent, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "frontend_dispatch_queue_length",
		Help: "Committed changes that wait to be sent to Cluster Service; more than 1024 are dropped and left to the backend.",
	}, func() float64 { return float64(len(d.queue)) }))
	return d
}

// Run sends changes until ctx ends, and returns when the last one under way is done.
func (d *Dispatcher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case c := <-d.queue:
					d.send(ctx, c)
				}
			}
		})
	}
	wg.Wait()
}

func (d *Dispatcher) send(ctx context.Context, c change) {
	ctx, cancel := context.WithTimeout(trace.ContextWithSpanContext(ctx, c.trace), deadline)
	defer cancel()
	started := time.Now()
	err := c.send(ctx)
	log := d.log.With("resource_id", c.resourceID, "operation_id", c.operationID, "correlation_id", c.correlationID,
		"duration_ms", float64(time.Since(started).Microseconds())/1000)
	if err != nil {
		d.sent.WithLabelValues("failed").Inc()
		e, text := apierror.As(err), err.Error()
		if e.Kind == apierror.Invalid {
			text = "the request is not valid" // more would repeat what the customer sent
		}
		log.Info("left the change to the backend", "reason", e.Reason, "error", text)
		return
	}
	d.sent.WithLabelValues("sent").Inc()
	log.Info("sent the change to Cluster Service")
}

func (d *Dispatcher) enqueue(c change) {
	select {
	case d.queue <- c:
	default:
		d.sent.WithLabelValues("dropped").Inc()
	}
}

// Cluster sends a cluster's change: its deletion when it is being deleted. The document is the dispatcher's from now on.
func (d *Dispatcher) Cluster(ctx context.Context, document *database.ClusterDocument, deleting bool, correlationID string) {
	d.enqueue(change{document.Cluster.ID, document.ActiveOperationID, correlationID, trace.SpanContextFromContext(ctx),
		call(document, deleting, d.clusterService.ApplyCluster, d.clusterService.DeleteCluster)})
}

// NodePool sends a node pool's change.
func (d *Dispatcher) NodePool(ctx context.Context, document *database.NodePoolDocument, deleting bool, correlationID string) {
	d.enqueue(change{document.NodePool.ID, document.ActiveOperationID, correlationID, trace.SpanContextFromContext(ctx),
		call(document, deleting, d.clusterService.ApplyNodePool, d.clusterService.DeleteNodePool)})
}

// ExternalAuth sends an external auth's change.
func (d *Dispatcher) ExternalAuth(ctx context.Context, document *database.ExternalAuthDocument, deleting bool, correlationID string) {
	d.enqueue(change{document.ExternalAuth.ID, document.ActiveOperationID, correlationID, trace.SpanContextFromContext(ctx),
		call(document, deleting, d.clusterService.ApplyExternalAuth, d.clusterService.DeleteExternalAuth)})
}

// call is the one of two calls that brings Cluster Service to a document; its report is for the backend.
func call[D any](document *D, deleting bool, apply, remove func(context.Context, *D) (clusterservice.Report, error)) func(context.Context) error {
	if deleting {
		apply = remove
	}
	return func(ctx context.Context) error {
		_, err := apply(ctx, document)
		return err
	}
}
