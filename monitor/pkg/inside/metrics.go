package inside

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// Metrics are the metrics of a Prober. None is of a single cluster.
type Metrics struct {
	probes, reports *prometheus.CounterVec
	seconds         prometheus.Histogram
}

// NewMetrics returns registered Metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		probes:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monitor_inside_probes_total", Help: "Probes of hosted API servers inside the management cluster, by outcome."}, []string{"outcome"}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monitor_inside_reports_total", Help: "Writes of reports to HostedClusters, with heartbeats, by outcome."}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "monitor_inside_probe_duration_seconds", Help: "Duration of successful probes inside the management cluster in seconds.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}}),
	}
	registry.MustRegister(m.probes, m.reports, m.seconds)
	for _, outcome := range probe.Outcomes() {
		m.probes.WithLabelValues(string(outcome))
	}
	for _, outcome := range []string{"written", "failed"} {
		m.reports.WithLabelValues(outcome)
	}
	return m
}

func (m *Metrics) observe(result *probe.Result) {
	m.probes.WithLabelValues(string(result.Outcome)).Inc()
	if result.Outcome == probe.OK {
		m.seconds.Observe(result.Duration.Seconds())
	}
}
