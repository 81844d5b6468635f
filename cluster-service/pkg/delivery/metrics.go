package delivery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
)

// Metrics are the metrics of the delivery.
type Metrics struct {
	publishes *prometheus.CounterVec
	overflows prometheus.Counter
	statuses  *prometheus.CounterVec
	orphans   prometheus.Counter
	unknown   prometheus.Gauge
	pending   prometheus.Gauge
	renewals  *prometheus.CounterVec
	stuck     *prometheus.GaugeVec
	leftovers prometheus.Gauge
}

// NewMetrics returns the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_publishes_total", Help: "Works published to Maestro, by outcome."}, []string{"outcome"}),
		overflows: prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_publish_queue_overflows_total", Help: "Clusters that did not fit into the publishing queue and waited until their lease ended."}),
		statuses:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_statuses_total", Help: "Statuses received from Maestro, by outcome."}, []string{"outcome"}),
		orphans:   prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_orphans_deleted_total", Help: "Works that Maestro reported after their removal and that were deleted from Maestro again."}),
		unknown:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_unknown_bundles", Help: "Bundles of Cluster Service at Maestro without a work and without a deletion record, as reported to this replica."}),
		pending:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_maestro_statuses_pending", Help: "Works whose newest status is not stored yet."}),
		renewals:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_renewals_total", Help: "Clusters that got a new rendering without a change of their own, by outcome; stopped counts renewals that were stopped."}, []string{"outcome"}),
		stuck:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_deletion_step_stuck", Help: "Steps of deletions that exceed their limit, by kind of step. Every replica counts all of them."}, []string{"step"}),
		leftovers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_deletion_leftovers", Help: "Works of forced deletions without a confirmation of their deletion. Every replica counts all of them."}),
	}
	for _, kind := range deletiongraph.Kinds() {
		m.stuck.WithLabelValues(kind).Set(0)
	}
	registry.MustRegister(m.publishes, m.overflows, m.statuses, m.orphans, m.unknown, m.pending, m.renewals, m.stuck, m.leftovers)
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
