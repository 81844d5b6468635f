package delivery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
)

// Metrics of the delivery.
type Metrics struct {
	publishes *prometheus.CounterVec
	overflows prometheus.Counter
	statuses  *prometheus.CounterVec
	orphans   prometheus.Counter
	strangers prometheus.Gauge
	pending   prometheus.Gauge
	renewals  *prometheus.CounterVec
	stuck     *prometheus.GaugeVec
	leftovers prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_publishes_total", Help: "Works published to Maestro, by outcome."}, []string{"outcome"}),
		overflows: prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_publish_queue_overflows_total", Help: "Clusters that did not fit into the publishing queue and waited for their lease to end."}),
		statuses:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_statuses_total", Help: "Statuses received from Maestro, by what came of them."}, []string{"outcome"}),
		orphans:   prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_orphans_deleted_total", Help: "Works that had been removed, came up again, and were deleted from Maestro."}),
		strangers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_strangers", Help: "Bundles of Cluster Service's at Maestro that are no work, and of which nothing says that they were removed, as this replica has heard of them."}),
		pending:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_maestro_statuses_pending", Help: "Works whose newest status waits to be decided on."}),
		renewals:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_renewals_total", Help: "Clusters that were rendered anew without a change of theirs, by what came of it; stopped counts renewals that were given up."}, []string{"outcome"}),
		stuck:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_deletion_step_stuck", Help: "Steps of deletions that run longer than they should, by kind of step. Every replica counts all of them."}, []string{"step"}),
		leftovers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_deletion_leftovers", Help: "Works of forced deletions that were not confirmed to be gone. Every replica counts all of them."}),
	}
	for _, kind := range deletiongraph.Kinds() {
		m.stuck.WithLabelValues(kind).Set(0)
	}
	registry.MustRegister(m.publishes, m.overflows, m.statuses, m.orphans, m.strangers, m.pending, m.renewals, m.stuck, m.leftovers)
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
