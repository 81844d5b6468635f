package observer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// maxConcerns is the number of concerns of a cluster that are exported, the most important ones. With the other metrics of a
// cluster they are at most ten series.
const maxConcerns = 2

// Metrics are the metrics of probes, without those of single clusters.
type Metrics struct {
	probes  *prometheus.CounterVec
	seconds prometheus.Histogram
	delayed prometheus.Counter
}

// NewMetrics returns registered Metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "monitor_probes_total", Help: "Probes of API servers by this replica, by outcome."}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "monitor_probe_duration_seconds", Help: "Duration of successful probes in seconds.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}}),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{Name: "monitor_probes_delayed_total", Help: "Probes that waited because too many others ran."}),
	}
	registry.MustRegister(m.probes, m.seconds, m.delayed)
	for _, outcome := range probe.Outcomes() {
		m.probes.WithLabelValues(string(outcome))
	}
	return m
}

func (m *Metrics) observe(result *probe.Result) {
	m.probes.WithLabelValues(string(result.Outcome)).Inc()
	if result.Outcome == probe.OK {
		m.seconds.Observe(result.Duration.Seconds())
	}
}

// Collector exports the state of each cluster that this replica observes, and of no other: the series of a cluster end with its
// deletion and with the loss of its group.
type Collector struct {
	observer *Observer

	info, up, unknown, probes, failures, expected, certificate, nodes, concern *prometheus.Desc
	expectedClusters, probedClusters, blind, unreachable, inside               *prometheus.Desc
}

// NewCollector returns a Collector of an Observer.
func NewCollector(observer *Observer) *Collector {
	return &Collector{
		observer:         observer,
		info:             prometheus.NewDesc("monitor_cluster_info", "Identity of a cluster, always 1.", []string{"cluster_uid", "resource_id", "shard", "version"}, nil),
		up:               prometheus.NewDesc("monitor_cluster_api_up", "Whether the API of a cluster is available; absent while that is unknown.", []string{"cluster_uid"}, nil),
		unknown:          prometheus.NewDesc("monitor_cluster_api_unknown", "Why the state of the API of a cluster is unknown, always 1; absent while it is known.", []string{"cluster_uid", "reason"}, nil),
		probes:           prometheus.NewDesc("monitor_cluster_probes_total", "Probes of a cluster by this replica; of one that does not admit monitor, samples of the state that the prober of its management cluster reports.", []string{"cluster_uid"}, nil),
		failures:         prometheus.NewDesc("monitor_cluster_probe_failures_total", "Failed probes of a cluster, or samples of an unavailable one, that count for the service level.", []string{"cluster_uid"}, nil),
		expected:         prometheus.NewDesc("monitor_cluster_expected_failures_total", "Failed probes of a cluster that do not count: after its creation, during an upgrade, and while monitor was blind.", []string{"cluster_uid"}, nil),
		certificate:      prometheus.NewDesc("monitor_cluster_certificate_end_seconds", "End of validity of the serving certificate of a cluster as a Unix time in seconds.", []string{"cluster_uid"}, nil),
		nodes:            prometheus.NewDesc("monitor_cluster_nodes", "Nodes of a cluster, as its node pools report them: wanted or ready; absent without any.", []string{"cluster_uid", "state"}, nil),
		concern:          prometheus.NewDesc("monitor_cluster_concern", "Since when a cluster has a concern, as a Unix time in seconds; absent without the concern. At most two for a cluster.", []string{"cluster_uid", "concern", "fault"}, nil),
		expectedClusters: prometheus.NewDesc("monitor_clusters_expected", "Ready clusters of this replica that monitor must observe, by provision shard: all but those that only a prober could see that fell silent.", []string{"shard"}, nil),
		probedClusters:   prometheus.NewDesc("monitor_clusters_probed", "Those of monitor_clusters_expected with a probe in the last 90 s, or with a report of the prober of their management cluster, by provision shard.", []string{"shard"}, nil),
		blind:            prometheus.NewDesc("monitor_blind", "Whether monitor cannot see the clusters.", nil, nil),
		unreachable:      prometheus.NewDesc("monitor_shard_unreachable", "Since when most clusters of a provision shard do not answer, as a Unix time in seconds; absent if they do.", []string{"shard"}, nil),
		inside:           prometheus.NewDesc("monitor_inside_last_report_seconds", "When the prober of the management cluster of a provision shard reported last, as a Unix time in seconds; absent if it never did. Every replica exports all of them.", []string{"shard"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.info, c.up, c.unknown, c.probes, c.failures, c.expected, c.certificate, c.nodes, c.concern,
		c.expectedClusters, c.probedClusters, c.blind, c.unreachable, c.inside} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	all, view := c.observer.Observations()
	now := c.observer.now()
	expected, probed := map[string]int{}, map[string]int{}
	for i := range all {
		o := &all[i]
		c.collectCluster(metrics, o)
		if must, is := o.watched(now); must {
			expected[o.Entry.Cluster.Shard]++
			probed[o.Entry.Cluster.Shard] += int(number(is))
		}
	}
	for shard, count := range expected {
		metrics <- prometheus.MustNewConstMetric(c.expectedClusters, prometheus.GaugeValue, float64(count), shard)
		metrics <- prometheus.MustNewConstMetric(c.probedClusters, prometheus.GaugeValue, float64(probed[shard]), shard)
	}
	metrics <- prometheus.MustNewConstMetric(c.blind, prometheus.GaugeValue, number(view.Blind))
	for shard, since := range view.Shards {
		metrics <- prometheus.MustNewConstMetric(c.unreachable, prometheus.GaugeValue, unix(since), shard)
	}
	for shard, seen := range c.observer.InsideReports() {
		metrics <- prometheus.MustNewConstMetric(c.inside, prometheus.GaugeValue, unix(seen), shard)
	}
}

// watched reports whether a cluster must be observed, and whether it is. Silence of the prober that sees a closed API has a metric of its own.
func (o *Observation) watched(now time.Time) (must, is bool) {
	cluster, verdict := &o.Entry.Cluster, &o.Verdict
	switch {
	case cluster.ReadySince.IsZero(), verdict.Reason == judge.InsideSilent:
		return false, false
	case cluster.Unprobed == judge.Blocked:
		return true, verdict.API != judge.Unknown || verdict.Reason == judge.Blind
	}
	return true, !o.Last.Time.IsZero() && now.Sub(o.Last.Time) <= judge.StaleAfter
}

func (c *Collector) collectCluster(metrics chan<- prometheus.Metric, o *Observation) {
	uid, v := o.Entry.UID, &o.Verdict
	metrics <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, uid, o.Entry.ResourceID, o.Entry.Cluster.Shard, o.Entry.Version)
	if v.API == judge.Unknown {
		metrics <- prometheus.MustNewConstMetric(c.unknown, prometheus.GaugeValue, 1, uid, string(v.Reason))
	} else {
		metrics <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, number(v.API == judge.Available), uid)
	}
	if o.Probes > 0 {
		metrics <- prometheus.MustNewConstMetric(c.probes, prometheus.CounterValue, o.Probes, uid)
		metrics <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, o.Failures, uid)
		metrics <- prometheus.MustNewConstMetric(c.expected, prometheus.CounterValue, o.Expected, uid)
	}
	if !o.CertificateEnd.IsZero() {
		metrics <- prometheus.MustNewConstMetric(c.certificate, prometheus.GaugeValue, unix(o.CertificateEnd), uid)
	}
	if nodes := &o.Entry.Cluster.Nodes; nodes.Wanted > 0 || nodes.Ready > 0 {
		metrics <- prometheus.MustNewConstMetric(c.nodes, prometheus.GaugeValue, float64(nodes.Wanted), uid, "wanted")
		metrics <- prometheus.MustNewConstMetric(c.nodes, prometheus.GaugeValue, float64(nodes.Ready), uid, "ready")
	}
	for _, concern := range v.Concerns[:min(len(v.Concerns), maxConcerns)] {
		metrics <- prometheus.MustNewConstMetric(c.concern, prometheus.GaugeValue, unix(concern.Since), uid, string(concern.Kind), string(concern.Fault))
	}
}

func number(value bool) float64 {
	if value {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
