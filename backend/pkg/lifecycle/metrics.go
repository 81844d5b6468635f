package lifecycle

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Metrics of the controller; none has a label per resource.
type Metrics struct {
	// Sent counts the requests that were sent to Cluster Service because the frontend had not, or not in time.
	Sent prometheus.Counter

	turns      *prometheus.HistogramVec
	operations *prometheus.HistogramVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		Sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "backend_cluster_service_requests_total", Help: "Requests sent to Cluster Service for accepted operations.",
		}),
		turns: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "backend_turn_duration_seconds", Help: "Time of one look at one resource.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, []string{"outcome"}),
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "backend_operation_duration_seconds", Help: "Time from the acceptance of an operation to its end.", Buckets: prometheus.ExponentialBuckets(0.05, 4, 10),
		}, []string{"request", "status"}),
	}
	registry.MustRegister(m.Sent, m.turns, m.operations)
	return m
}

func (m *Metrics) turn(took time.Duration, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.turns.WithLabelValues(outcome).Observe(took.Seconds())
}

func (m *Metrics) ended(operation *database.OperationDocument, took time.Duration) {
	m.operations.WithLabelValues(string(operation.Request), string(operation.Status)).Observe(took.Seconds())
}
