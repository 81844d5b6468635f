package lifecycle

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

// Metrics of the controller; none has a label per resource.
type Metrics struct {
	// Sent counts the requests that were sent to Cluster Service because the frontend had not, or not in time.
	Sent prometheus.Counter
	// Resent counts what was sent again because Cluster Service had lost it, by kind of resource and whether it was its state or
	// its deletion.
	Resent *prometheus.CounterVec

	processed  *prometheus.HistogramVec
	operations *prometheus.HistogramVec
	stuck      *prometheus.GaugeVec

	mu sync.Mutex
	// stuckSteps are the steps that deletions are stuck in, by resource.
	stuckSteps map[eventqueue.Resource]string
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		Sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "backend_cluster_service_requests_total", Help: "Requests sent to Cluster Service for accepted operations.",
		}),
		Resent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_reconciliation_sent_total", Help: "Requests sent to Cluster Service again because it had lost what it had accepted, by kind of resource and what was sent.",
		}, []string{"kind", "sent"}),
		processed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "backend_turn_duration_seconds", Help: "Time of one look at one resource.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"outcome"}),
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "backend_operation_duration_seconds", Help: "Time from the acceptance of an operation to its end.", Buckets: prometheus.ExponentialBuckets(0.05, 4, 10),
		}, []string{"request", "status"}),
		stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "backend_deletion_step_stuck", Help: "Deletions of this replica's resources that are in a step for longer than they should, by step.",
		}, []string{"step"}),
		stuckSteps: map[eventqueue.Resource]string{},
	}
	for _, kind := range deletion.StepKinds() {
		m.stuck.WithLabelValues(kind).Set(0)
	}
	registry.MustRegister(m.Sent, m.Resent, m.processed, m.operations, m.stuck)
	return m
}

// setStuckStep notes the step that a resource's deletion is stuck in, empty for none, and says whether that is news.
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

func (m *Metrics) observeTurn(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.processed.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *Metrics) observeOperation(operation *database.OperationDocument, took time.Duration) {
	m.operations.WithLabelValues(string(operation.Request), string(operation.Status)).Observe(took.Seconds())
}
