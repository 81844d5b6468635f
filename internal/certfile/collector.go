package certfile

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the metric of the end of a certificate. certificate returns the one in use.
func Collector(certificate func() *tls.Certificate) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "workload_certificate_end_seconds",
		Help: "End of the certificate with which the process identifies itself, in Unix time.",
	}, func() float64 { return float64(certificate().Leaf.NotAfter.Unix()) })
}
