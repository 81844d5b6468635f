package delivery

import "github.com/prometheus/client_golang/prometheus"

// metrics have no labels whose values grow with the number of resources.
type metrics struct {
	sent, reports    *prometheus.CounterVec
	parked, invalid  prometheus.Counter
	dropped, resyncs prometheus.Counter
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
		reports:  vec("statuses_total", "Statuses received from agents, by outcome.", "outcome"),
		parked:   counter("deliveries_parked_total", "Deliveries that cannot be sent."),
		invalid:  counter("invalid_messages_total", "Invalid messages of agents."),
		dropped:  counter("agent_events_missed_total", "Agent events dropped because the inbox of their consumer was full."),
		resyncs:  counter("spec_resyncs_total", "Spec resyncs requested by agents."),
		resent:   counter("deliveries_resent_total", "Deliveries sent again for lack of a confirmation."),
		failures: counter("delivery_failures_total", "Failed attempts to send deliveries."),
		unknown:  counter("unknown_works_total", "Reports about works that the server has no record of."),
		serving:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "maestro", Name: "consumers_served", Help: "Consumers that this replica serves."}),
	}
	registry.MustRegister(m.serving)
	return m
}
