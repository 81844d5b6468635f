package egress

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	connections *prometheus.CounterVec
	ended       *prometheus.CounterVec
	bytes       *prometheus.CounterVec
	suppressed  prometheus.Counter
}

// outcomes returns all outcomes.
func outcomes() []Outcome {
	all := []Outcome{Local, NoLink, UnverifiedLink, Stale, Busy, BusyLink, RateLink, Timeout, Malformed, Address, Unresolved, Unreachable, Canceled}
	for _, reason := range Reasons() {
		all = append(all, Outcome(reason))
	}
	return all
}

func newMetrics(registry prometheus.Registerer, open func() float64) *metrics {
	m := &metrics{
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_egress_connections_total",
			Help: "Connections to the egress gateway, by protocol (sni, connect) and outcome: permitted, or why it was refused. docs/operators/egress-gateway.md explains each."}, []string{"protocol", "outcome"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_egress_connections_ended_total",
			Help: "Permitted connections of the egress gateway that have ended, by reason: closed by one side, idle, link removed, host no longer permitted, link no longer verified, stale links, or stopped with the gateway."}, []string{"reason"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_egress_bytes_total",
			Help: "Bytes of ended connections of the egress gateway, by direction: sent by clients, or received by them."}, []string{"direction"}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{Name: "gateway_egress_records_suppressed_total",
			Help: "Refused connections of the egress gateway without an access record, because their link has too many."}),
	}
	for _, protocol := range Protocols() {
		for _, outcome := range outcomes() {
			m.connections.WithLabelValues(string(protocol), string(outcome))
		}
	}
	for _, end := range ends() {
		m.ended.WithLabelValues(string(end))
	}
	for _, direction := range []string{"sent", "received"} {
		m.bytes.WithLabelValues(direction)
	}
	registry.MustRegister(m.connections, m.ended, m.bytes, m.suppressed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gateway_egress_connections", Help: "Open connections of the egress gateway, with those that have not named a host yet.",
	}, open))
	return m
}
