package delivery

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
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
	refused   prometheus.Gauge
	// heartbeats, capacity and clusters have one series per provision shard, the first only after the agent's first heartbeat.
	// states has one series per provision shard and state. shown are the exported shards.
	heartbeats, capacity, clusters, states *prometheus.GaugeVec
	shown                                  map[string]bool
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
		refused:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_works_refused", Help: "Works that Maestro or the API server of a management cluster refuses permanently, and works whose refused update was taken back: a person must change the desired state or the management cluster. Every replica counts all of them."}),
		heartbeats: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_agent_last_heartbeat_seconds", Help: "Time of the last heartbeat of the agent of each provision shard, as Unix time. Every replica exports all of them."}, []string{"shard"}),
		capacity:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_shard_capacity", Help: "Most clusters that each provision shard accepts. Every replica exports all of them."}, []string{"shard"}),
		clusters:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_shard_clusters", Help: "Clusters on each provision shard, with those in creation and deletion. Every replica exports all of them."}, []string{"shard"}),
		states:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_service_shard_state", Help: "1 for the state of each provision shard for new clusters and 0 for its other states. Every replica exports all of them."}, []string{"shard", "state"}),
	}
	registry.MustRegister(m.publishes, m.overflows, m.statuses, m.orphans, m.unknown, m.pending, m.removals, m.lost, m.refused, m.heartbeats, m.capacity, m.clusters, m.states)
	return m
}

// showShards exports the state of all shards. It removes those of shards that were deregistered. It has one caller at a time.
func (m *Metrics) showShards(shards []store.Shard) {
	shown := map[string]bool{}
	for i := range shards {
		shard := &shards[i]
		if shard.Deregistered {
			continue // the row stays for its history
		}
		shown[shard.Name] = true
		if !shard.LastHeartbeat.IsZero() {
			m.heartbeats.WithLabelValues(shard.Name).Set(float64(shard.LastHeartbeat.Unix()))
		}
		m.capacity.WithLabelValues(shard.Name).Set(float64(shard.Capacity()))
		m.clusters.WithLabelValues(shard.Name).Set(float64(shard.Clusters))
		for _, state := range placement.States() {
			value := 0.0
			if state == shard.State() {
				value = 1
			}
			m.states.WithLabelValues(shard.Name, string(state)).Set(value)
		}
	}
	for shard := range m.shown {
		if !shown[shard] {
			for _, series := range []*prometheus.GaugeVec{m.heartbeats, m.capacity, m.clusters, m.states} {
				series.DeletePartialMatch(prometheus.Labels{"shard": shard})
			}
		}
	}
	m.shown = shown
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
