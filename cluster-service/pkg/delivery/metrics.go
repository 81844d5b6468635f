package delivery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// Metrics are the metrics of the delivery.
type Metrics struct {
	publishes *prometheus.CounterVec
	overflows prometheus.Counter
	statuses  *prometheus.CounterVec
	orphans   prometheus.Counter
	unknown   prometheus.Gauge
	pending   prometheus.Gauge
	removals  *prometheus.CounterVec
	lost      prometheus.Gauge
	// heartbeats has one series per provision shard whose agent has sent a heartbeat. beating are these shards.
	heartbeats *prometheus.GaugeVec
	beating    map[string]bool
}

// NewMetrics returns the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		publishes:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_publishes_total", Help: "Works published to Maestro, by outcome."}, []string{"outcome"}),
		overflows:  prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_publish_queue_overflows_total", Help: "Clusters that did not fit into the publishing queue and waited until their lease ended."}),
		statuses:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_maestro_statuses_total", Help: "Statuses received from Maestro, by outcome."}, []string{"outcome"}),
		orphans:    prometheus.NewCounter(prometheus.CounterOpts{Name: "cluster_service_orphans_deleted_total", Help: "Works that Maestro reported after their removal and that were deleted from Maestro again."}),
		unknown:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_unknown_bundles", Help: "Bundles of Cluster Service at Maestro without a work and without a deletion record, as reported to this replica."}),
		pending:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_maestro_statuses_pending", Help: "Works whose newest status is not stored yet."}),
		removals:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "cluster_service_objects_removed_total", Help: "Applied objects that another client removed from a management cluster, by kind and provision shard. The replica that receives the report counts it."}, []string{"kind", "shard"}),
		lost:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_control_planes_lost", Help: "Installed clusters whose control plane was removed, and for which an SRE must decide whether its successor is accepted. Every replica counts all of them."}),
		heartbeats: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_agent_last_heartbeat_seconds", Help: "Time of the last heartbeat of the agent of each provision shard, as Unix time. Every replica exports all of them."}, []string{"shard"}),
	}
	registry.MustRegister(m.publishes, m.overflows, m.statuses, m.orphans, m.unknown, m.pending, m.removals, m.lost, m.heartbeats)
	return m
}

// showHeartbeats exports the last heartbeats of the agents of all shards. It removes the series of shards that do not exist any more.
// It has one caller at a time.
func (m *Metrics) showHeartbeats(shards []store.Shard) {
	beating := map[string]bool{}
	for _, shard := range shards {
		if !shard.LastHeartbeat.IsZero() {
			beating[shard.Name] = true
			m.heartbeats.WithLabelValues(shard.Name).Set(float64(shard.LastHeartbeat.Unix()))
		}
	}
	for shard := range m.beating {
		if !beating[shard] {
			m.heartbeats.DeleteLabelValues(shard)
		}
	}
	m.beating = beating
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
