package delivery

import "github.com/prometheus/client_golang/prometheus"

// metrics have no labels whose values grow with the number of resources.
type metrics struct {
	sent, reports    *prometheus.CounterVec
	parked, invalid  prometheus.Counter
	dropped          *prometheus.CounterVec
	resyncs          prometheus.Counter
	resent, failures prometheus.Counter
	serving          prometheus.Gauge
	unknown          prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	counter := func(options prometheus.CounterOpts) prometheus.Counter {
		c := prometheus.NewCounter(options)
		registry.MustRegister(c)
		return c
	}
	vec := func(options prometheus.CounterOpts, labels []string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(options, labels)
		registry.MustRegister(c)
		return c
	}
	m := &metrics{
		sent:     vec(prometheus.CounterOpts{Name: "maestro_deliveries_sent_total", Help: "Events sent to agents."}, []string{"action"}),
		reports:  vec(prometheus.CounterOpts{Name: "maestro_statuses_total", Help: "Statuses received from agents, by outcome."}, []string{"outcome"}),
		parked:   counter(prometheus.CounterOpts{Name: "maestro_deliveries_parked_total", Help: "Deliveries that cannot be sent."}),
		invalid:  counter(prometheus.CounterOpts{Name: "maestro_invalid_messages_total", Help: "Invalid messages of agents, and malformed elements of their lists of works."}),
		dropped:  vec(prometheus.CounterOpts{Name: "maestro_agent_events_missed_total", Help: "Agent events dropped, by exceeded limit: the number or bytes of waiting events of the agent, or the size of one event."}, []string{"limit"}),
		resyncs:  counter(prometheus.CounterOpts{Name: "maestro_spec_resyncs_total", Help: "Spec resyncs requested by agents."}),
		resent:   counter(prometheus.CounterOpts{Name: "maestro_deliveries_resent_total", Help: "Deliveries sent again for lack of a confirmation."}),
		failures: counter(prometheus.CounterOpts{Name: "maestro_delivery_failures_total", Help: "Failed attempts to send deliveries."}),
		unknown:  counter(prometheus.CounterOpts{Name: "maestro_unknown_works_total", Help: "Reports about works that the server has no record of."}),
		serving:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "maestro", Name: "consumers_served", Help: "Consumers that this replica serves."}),
	}
	registry.MustRegister(m.serving)
	return m
}
