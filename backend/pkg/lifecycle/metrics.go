package lifecycle

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/customererror"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// Metrics are the metrics of the Controller. None has a label per resource.
type Metrics struct {
	// Sent counts the requests to Cluster Service that the frontend had not sent in time.
	Sent prometheus.Counter
	// Resent counts the requests that were repeated because Cluster Service had lost state, by kind of resource and
	// request.
	Resent *prometheus.CounterVec

	processed  *prometheus.HistogramVec
	operations *prometheus.HistogramVec
	ended      *prometheus.CounterVec
	stuck      *prometheus.GaugeVec

	mu sync.Mutex
	// stuckSteps maps resources to the steps in which their deletions are stuck.
	stuckSteps map[eventqueue.Resource]string
}

// durations are the upper bounds of durations of operations in seconds. The objectives of docs/slo.md are 20 and 25 minutes.
var durations = []float64{0.1, 0.5, 2, 10, 60, 300, 600, 900, 1200, 1500, 1800, 2700, 3600, 7200}

// NewMetrics creates and registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		Sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "backend_cluster_service_requests_total", Help: "Requests to Cluster Service for accepted operations that the frontend had not sent in time.",
		}),
		Resent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_reconciliation_sent_total", Help: "Requests repeated because Cluster Service had lost accepted state, by kind of resource and request.",
		}, []string{"kind", "sent"}),
		processed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "backend_reconcile_duration_seconds", Help: "Duration of one processing of a resource, by outcome.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"outcome"}),
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "backend_operation_duration_seconds", Help: "Time from the acceptance of an operation to its end, by request and status.", Buckets: durations,
		}, []string{"request", "status"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_operations_ended_total", Help: "Operations that this replica has ended, by kind of resource, request, status and whose fault it is: none, customer, azure or service.",
		}, []string{"kind", "request", "status", "fault"}),
		stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "backend_deletion_step_stuck", Help: "Deletions that are stuck, by step, among the resources of this replica.",
		}, []string{"step"}),
		stuckSteps: map[eventqueue.Resource]string{},
	}
	// Rates need the series before the first failure.
	for _, of := range eventqueue.OperationClasses() {
		m.ended.WithLabelValues(string(of.Kind), string(of.Request), string(hub.Succeeded), string(customererror.FaultNone))
		for _, fault := range customererror.Faults() {
			if fault != customererror.FaultNone {
				m.ended.WithLabelValues(string(of.Kind), string(of.Request), string(hub.Failed), string(fault))
			}
		}
	}
	for _, kind := range deletion.StepKinds() {
		m.stuck.WithLabelValues(kind).Set(0)
	}
	registry.MustRegister(m.Sent, m.Resent, m.processed, m.operations, m.ended, m.stuck)
	return m
}

// setStuckStep sets the step in which a resource's deletion is stuck, or empty. It reports whether the step has
// changed.
func (m *Metrics) setStuckStep(r eventqueue.Resource, step string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.stuckSteps[r]
	if before == step {
		return false
	}
	if before != "" {
		m.stuck.WithLabelValues(before).Dec()
		delete(m.stuckSteps, r)
	}
	if step != "" {
		m.stuck.WithLabelValues(step).Inc()
		m.stuckSteps[r] = step
	}
	return true
}

func (m *Metrics) observeProcessing(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.processed.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *Metrics) observeOperation(operation *database.OperationDocument, took time.Duration) {
	m.operations.WithLabelValues(string(operation.Request), string(operation.Status)).Observe(took.Seconds())
	of := eventqueue.ClassOf(operation)
	m.ended.WithLabelValues(string(of.Kind), string(of.Request), string(operation.Status), string(customererror.FaultOf(operation.Error))).Inc()
}
