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

// silences returns the silences of the flags; nil if they name no Alertmanager.
func (o *Options) silences() (*alerts.Silences, error) {
	if o.AlertmanagerURL == "" {
		return nil, nil
	}
	transport, err := alerts.Transport("")
	if err != nil {
		return nil, fmt.Errorf("--alertmanager-url: %w", err)
	}
	return alerts.NewSilences(o.AlertmanagerURL, transport), nil
}
