package recorder

import "github.com/prometheus/client_golang/prometheus"

// The causes of failures.
const (
	// causeDisk is a disk that is full or away, causeFull the limit of all recordings, and causeSize that of one.
	causeDisk = "disk"
	causeFull = "full"
	causeSize = "size"
)

type metrics struct {
	failures *prometheus.CounterVec
	failing  prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer, s *Store) *metrics {
	m := &metrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_access_recording_failures_total",
			Help: "Commands and attachments that were refused or ended because they could not be recorded, by cause: disk (full or away), full (the limit of all recordings) or size (the limit of one)."}, []string{"cause"}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gateway_access_recording_export_failing",
			Help: "1 if the last export of recordings failed, so that they stay on the disk, else 0."}),
	}
	for _, cause := range []string{causeDisk, causeFull, causeSize} {
		m.failures.WithLabelValues(cause)
	}
	registry.MustRegister(m.failures, m.failing,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gateway_access_recording_bytes", Help: "Bytes of recordings on the disk, with the space that is reserved for their ends."},
			func() float64 { s.mu.Lock(); defer s.mu.Unlock(); return float64(s.total) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "gateway_access_recording_limit_bytes", Help: "Limit of the recordings on the disk. At the limit, commands and attachments are refused."},
			func() float64 { return float64(s.options.MaxTotal) }))
	return m
}
