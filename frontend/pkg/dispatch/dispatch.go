// Package dispatch is the fast path to Cluster Service. It sends a committed change at once, so that the fleet starts
// to work without waiting for the backend.
//
// The fast path is optional: the backend sends the same request for every committed change. A change that is dropped
// here, because the queue is full, Cluster Service is unavailable or the process terminates, is only delayed. No
// request waits for the outcome, and the outcome does not affect the response to the customer.
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
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ClusterService receives the changes; *clusterservice.Client implements it.
type ClusterService interface {
	ApplyCluster(ctx context.Context, document *database.ClusterDocument) (clusterservice.Report, error)
	DeleteCluster(ctx context.Context, document *database.ClusterDocument) (clusterservice.Report, error)
	ApplyNodePool(ctx context.Context, document *database.NodePoolDocument) (clusterservice.Report, error)
	DeleteNodePool(ctx context.Context, document *database.NodePoolDocument) (clusterservice.Report, error)
	ApplyExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (clusterservice.Report, error)
	DeleteExternalAuth(ctx context.Context, document *database.ExternalAuthDocument) (clusterservice.Report, error)
}

// The bounds: the number of queued changes, the number of concurrent calls, and the duration of one call.
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

// Dispatcher sends committed changes. Its methods do not block. They use the trace of their context and ignore its end.
type Dispatcher struct {
	clusterService ClusterService
	log            *slog.Logger
	queue          chan change
	sent           *prometheus.CounterVec
}

// New returns a Dispatcher. It sends nothing before Run.
func New(clusterService ClusterService, log *slog.Logger, metrics prometheus.Registerer) *Dispatcher {
	d := &Dispatcher{
		clusterService: clusterService,
		log:            log,
		queue:          make(chan change, queueLength),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "frontend_dispatch_total",
			Help: "Number of committed changes, by result of the fast path to Cluster Service: sent, failed or dropped.",
		}, []string{"result"}),
	}
	metrics.MustRegister(d.sent, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "frontend_dispatch_queue_length",
		Help: "Number of committed changes that wait for the fast path. Changes above 1024 are dropped; the backend sends them.",
	}, func() float64 { return float64(len(d.queue)) }))
	return d
}

// Run sends changes until ctx ends. It returns after the last call has ended.
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
	log := d.log.With(logkey.ResourceID, c.resourceID, logkey.OperationID, c.operationID, logkey.CorrelationID, c.correlationID,
		logkey.Duration, time.Since(started).Round(time.Microsecond).String())
	if err != nil {
		d.sent.WithLabelValues("failed").Inc()
		e, text := apierror.As(err), err.Error()
		if e.Kind == apierror.Invalid {
			text = "the request is not valid" // the full text would repeat parts of the customer's request
		}
		log.InfoContext(ctx, "change not sent to Cluster Service; the backend will send it", logkey.Reason, e.Reason, logkey.Error, text)
		return
	}
	d.sent.WithLabelValues("sent").Inc()
	log.InfoContext(ctx, "change sent to Cluster Service")
}

func (d *Dispatcher) enqueue(c change) {
	select {
	case d.queue <- c:
	default:
		d.sent.WithLabelValues("dropped").Inc()
	}
}

// Cluster queues a cluster's change, or its deletion if deleting is set. The caller must not use the document
// afterwards.
func (d *Dispatcher) Cluster(ctx context.Context, document *database.ClusterDocument, deleting bool, correlationID string) {
	d.enqueue(change{document.Cluster.ID, document.ActiveOperationID, correlationID, trace.SpanContextFromContext(ctx),
		call(document, deleting, d.clusterService.ApplyCluster, d.clusterService.DeleteCluster)})
}

// NodePool queues a node pool's change; see Cluster.
func (d *Dispatcher) NodePool(ctx context.Context, document *database.NodePoolDocument, deleting bool, correlationID string) {
	d.enqueue(change{document.NodePool.ID, document.ActiveOperationID, correlationID, trace.SpanContextFromContext(ctx),
		call(document, deleting, d.clusterService.ApplyNodePool, d.clusterService.DeleteNodePool)})
}

// ExternalAuth queues an external authentication's change; see Cluster.
func (d *Dispatcher) ExternalAuth(ctx context.Context, document *database.ExternalAuthDocument, deleting bool, correlationID string) {
	d.enqueue(change{document.ExternalAuth.ID, document.ActiveOperationID, correlationID, trace.SpanContextFromContext(ctx),
		call(document, deleting, d.clusterService.ApplyExternalAuth, d.clusterService.DeleteExternalAuth)})
}

// call returns the call that sends a document. It ignores the report, which the backend evaluates.
func call[D any](document *D, deleting bool, apply, remove func(context.Context, *D) (clusterservice.Report, error)) func(context.Context) error {
	if deleting {
		apply = remove
	}
	return func(ctx context.Context) error {
		_, err := apply(ctx, document)
		return err
	}
}
