package delivery

import "github.com/prometheus/client_golang/prometheus"

// metrics are labelled with nothing that grows with the number of resources.
type metrics struct {
	sent, reports    *prometheus.CounterVec
	parked, invalid  prometheus.Counter
	missed, resyncs  prometheus.Counter
	resent, failures prometheus.Counter
	serving          prometheus.Gauge
	unknown          prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "maestro", Name: name, Help: help})
		registry.MustRegister(c)
		return c
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "maestro", Name: name, Help: help}, []string{label})
		registry.MustRegister(c)
		return c
	}
	m := &metrics{
		sent:     vec("deliveries_sent_total", "Events sent to agents.", "action"),
		reports:  vec("statuses_total", "Statuses taken in from agents, by what became of them.", "outcome"),
		parked:   counter("deliveries_parked_total", "Deliveries that cannot be sent and were put aside."),
		invalid:  counter("invalid_messages_total", "Messages from agents that could not be understood."),
		missed:   counter("agent_events_missed_total", "Agent events dropped because the consumer's inbox was full; a resync follows."),
		resyncs:  counter("spec_resyncs_total", "Spec resyncs asked for by agents."),
		resent:   counter("deliveries_resent_total", "Deliveries sent again because they were not confirmed in time."),
		failures: counter("delivery_failures_total", "Attempts to send that failed."),
		unknown:  counter("unknown_works_total", "Reports about works that this server has never had."),
		serving:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "maestro", Name: "consumers_served", Help: "Consumers this replica serves."}),
	}
	registry.MustRegister(m.serving)
	return m
}
