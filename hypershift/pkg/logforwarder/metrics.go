package logforwarder

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// metrics are the metrics of a forwarder.
type metrics struct {
	records     *prometheus.CounterVec
	appends     *prometheus.CounterVec
	poisoned    *prometheus.CounterVec
	discarded   prometheus.Counter
	gaps        *prometheus.CounterVec
	checkpoints prometheus.Counter
	streams     prometheus.Gauge
	deliveries  *deliveries
}

// The reasons of gaps.
const (
	gapRotated = "rotated"
	gapDeleted = "cluster_deleted"
)

func newMetrics(registry prometheus.Registerer, deliveries *deliveries) *metrics {
	m := &metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "customer_logs", Name: "records_total",
			Help: "Records that customers' storage accounts accepted."}, []string{"category"}),
		appends: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "customer_logs", Name: "appends_total",
			Help: "Appends to customers' storage accounts that succeeded, and those that failed by whose fault it was: customer, azure or service."}, []string{"outcome"}),
		poisoned: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "customer_logs", Name: "poisoned_total",
			Help: "Lines that were put into a poison box instead of being delivered."}, []string{"reason"}),
		discarded: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "customer_logs", Name: "poison_discards_total",
			Help: "Times that the older file of a poison box was removed because the box was full."}),
		gaps: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "customer_logs", Name: "gaps_total",
			Help: "Places where lines of customers' logs may be missing, because files were removed before they were read, by whose fault it is: customer, azure or service."}, []string{"reason", "fault"}),
		checkpoints: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "customer_logs", Name: "checkpoint_failures_total",
			Help: "Positions that could not be stored. Lines after the stored position are delivered again after a restart."}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "customer_logs", Name: "streams",
			Help: "Categories of clusters that are delivered to a storage account."}),
		deliveries: deliveries,
	}
	for _, s := range sources() {
		m.records.WithLabelValues(string(s.category))
	}
	for _, outcome := range []string{"succeeded", string(hostedreport.LogFaultCustomer), string(hostedreport.LogFaultAzure), string(hostedreport.LogFaultService)} {
		m.appends.WithLabelValues(outcome)
	}
	for _, reason := range []string{reasonNotJSON, reasonTooLarge, reasonRefused} {
		m.poisoned.WithLabelValues(reason)
	}
	for _, reason := range []string{gapRotated, gapDeleted} {
		for _, fault := range []hostedreport.LogFault{hostedreport.LogFaultCustomer, hostedreport.LogFaultAzure, hostedreport.LogFaultService} {
			m.gaps.WithLabelValues(reason, string(fault))
		}
	}
	registry.MustRegister(m.records, m.appends, m.poisoned, m.discarded, m.gaps, m.checkpoints, m.streams, m.deliveries)
	return m
}
