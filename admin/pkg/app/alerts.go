package app

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
)

// alerts returns the history of alerts of the flags; nil if they name no Prometheus.
func (o *Options) alerts() (*alerts.History, error) {
	if o.PrometheusURL == "" {
		return nil, nil
	}
	transport, err := alerts.Transport(o.PrometheusScope)
	if err != nil {
		return nil, fmt.Errorf("--prometheus-scope: %w", err)
	}
	history, err := alerts.New(o.PrometheusURL, transport)
	if err != nil {
		return nil, fmt.Errorf("--prometheus-url: %w", err)
	}
	return history, nil
}
