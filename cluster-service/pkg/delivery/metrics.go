package delivery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
)

// Metrics of the delivery.
type Metrics struct {
	publishes *prometheus.CounterVec
	overflows prometheus.Counter
	statuses  *prometheus.CounterVec
	orphans   prometheus.Counter
	pending   prometheus.Gauge
	renewals  *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_publishes_total", Help: "Works published to Maestro, by outcome."}, []string{"outcome"}),
		overflows: prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_publish_queue_overflows_total", Help: "Clusters that did not fit into the publishing queue and waited for their lease to end."}),
		statuses:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_statuses_total", Help: "Statuses received from Maestro, by what came of them."}, []string{"outcome"}),
		orphans:   prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_orphans_deleted_total", Help: "Works without an owner that were deleted from Maestro."}),
		pending:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_maestro_statuses_pending", Help: "Works whose newest status waits to be decided on."}),
		renewals:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_renewals_total", Help: "Clusters that were rendered anew without a change of theirs, by what came of it; stopped counts renewals that were given up."}, []string{"outcome"}),
	}
	registry.MustRegister(m.publishes, m.overflows, m.statuses, m.orphans, m.pending, m.renewals)
	return m
}

func (m *Metrics) published(err error) {
	outcome := "ok"
	switch {
	case errors.Is(err, maestro.ErrRefused):
		outcome = "refused"
	case err != nil:
		outcome = "failed"
	}
	m.publishes.WithLabelValues(outcome).Inc()
}
