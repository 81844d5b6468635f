package certfile

import (
	"crypto/tls"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// ListenerConfig returns the configuration of a listener with the certificate and key of the flags --tls-cert and --tls-key, and registers the metric of its
// end. It returns nil without a certificate.
func ListenerConfig(certificateFile, keyFile string, metrics prometheus.Registerer) (*tls.Config, error) {
	if certificateFile == "" {
		return nil, nil
	}
	pair, err := LoadPair(certificateFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	metrics.MustRegister(Collector(pair.Certificate))
	return pair.ServerConfig(), nil
}

// Collector returns the metric of the end of a certificate. certificate returns the one in use.
func Collector(certificate func() *tls.Certificate) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "workload_certificate_end_seconds",
		Help: "End of the certificate with which the process identifies itself, in Unix time.",
	}, func() float64 { return float64(certificate().Leaf.NotAfter.Unix()) })
}
