package egress

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	connects *prometheus.CounterVec
	ended    *prometheus.CounterVec
	bytes    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, tunnels func() float64) *metrics {
	m := &metrics{
		connects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_connects_total",
			Help: "Connections that control planes asked the egress proxy for, by outcome: allowed, refused by the policy (invalid, port, address), unresolved, unreachable, or busy if there were too many tunnels.",
		}, []string{"outcome"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "egress_tunnels_ended_total",
			Help: "Tunnels of the egress proxy that have ended, by reason: closed by one side, shutdown, or a limit (idle, lifetime, bytes).",
		}, []string{"reason"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "egress_bytes_total", Help: "Bytes in tunnels of the egress proxy that have ended, in both directions.",
		}),
	}
	for _, outcome := range []string{OutcomeAllowed, OutcomeInvalid, OutcomePort, OutcomeAddress, OutcomeUnresolved, OutcomeUnreachable, OutcomeBusy} {
		m.connects.WithLabelValues(outcome)
	}
	for _, end := range []string{endClosed, endIdle, endLifetime, endBytes, endShutdown} {
		m.ended.WithLabelValues(end)
	}
	registry.MustRegister(m.connects, m.ended, m.bytes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "egress_tunnels", Help: "Tunnels of the egress proxy, including those that are being connected.",
	}, tunnels))
	return m
}
