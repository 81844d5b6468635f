package writer

import "github.com/prometheus/client_golang/prometheus"

// The causes of rejected records.
const (
	failureFull = "full"
	failureDisk = "disk"
)

// The destinations of exports.
const (
	failureSink    = "sink"
	failureWitness = "witness"
)

type metrics struct {
	records        prometheus.Counter
	failures       *prometheus.CounterVec
	exportFailures *prometheus.CounterVec
	failing        prometheus.Gauge
	conflict       prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, w *Writer) *metrics {
	m := &metrics{
		records: prometheus.NewCounter(prometheus.CounterOpts{Name: "audit_records_total", Help: "Audit records that were stored durably."}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "audit_rejections_total",
			Help: "Audit records that were not stored, so that their requests were rejected, by cause: full (the queue) or disk."}, []string{"cause"}),
		exportFailures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "audit_export_failures_total",
			Help: "Failed exports of audit records, by destination: sink or witness."}, []string{"destination"}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{Name: "audit_export_failing",
			Help: "1 if the last export of audit records failed, so that the queue grows, else 0."}),
		conflict: prometheus.NewGauge(prometheus.GaugeOpts{Name: "audit_sink_conflict",
			Help: "1 if the audit sink does not have what the writer exported, else 0."}),
	}
	for _, cause := range []string{failureFull, failureDisk} {
		m.failures.WithLabelValues(cause)
	}
	for _, destination := range []string{failureSink, failureWitness} {
		m.exportFailures.WithLabelValues(destination)
	}
	registry.MustRegister(m.records, m.failures, m.exportFailures, m.failing, m.conflict,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "audit_queue_bytes", Help: "Bytes of the audit queue on the disk, with the space that is reserved for outcomes."},
			func() float64 { return float64(w.queue.size() + w.reserved.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "audit_queue_limit_bytes", Help: "Limit of the audit queue. A full queue rejects requests that must be audited."},
			func() float64 { return float64(w.config.MaxBytes) }))
	registry.MustRegister(signingKey{w})
	return m
}

// signingKey exports the ID of the key that signs checkpoints.
type signingKey struct{ *Writer }

func (k signingKey) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "audit_signing_key",
		Help: "1 for the key with which the process signs audit checkpoints, by its ID."}, []string{"key"})
}

// Describe implements prometheus.Collector.
func (k signingKey) Describe(descs chan<- *prometheus.Desc) { k.gauge().Describe(descs) }

// Collect implements prometheus.Collector.
func (k signingKey) Collect(metrics chan<- prometheus.Metric) {
	gauge := k.gauge()
	gauge.WithLabelValues(k.config.Key.ID()).Set(1)
	gauge.Collect(metrics)
}
