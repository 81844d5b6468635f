package logforwarder

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
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
	waiting     *waiting
}

// The reasons of gaps.
const (
	gapRotated = "rotated"
	gapDeleted = "cluster_deleted"
)

func newMetrics(registry prometheus.Registerer, now func() time.Time) *metrics {
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
		waiting: newWaiting(now),
	}
	for _, s := range sources() {
		m.records.WithLabelValues(string(s.category))
	}
	for _, outcome := range []string{"succeeded", faultCustomer, faultAzure, faultService} {
		m.appends.WithLabelValues(outcome)
	}
	for _, reason := range []string{reasonNotJSON, reasonTooLarge, reasonRefused} {
		m.poisoned.WithLabelValues(reason)
	}
	for _, reason := range []string{gapRotated, gapDeleted} {
		for _, fault := range []string{faultCustomer, faultAzure, faultService} {
			m.gaps.WithLabelValues(reason, fault)
		}
	}
	registry.MustRegister(m.records, m.appends, m.poisoned, m.discarded, m.gaps, m.checkpoints, m.streams, m.waiting)
	return m
}

// streamKey identifies a stream. Setting is the folder of the setting. The key of reading settings has no category.
type streamKey struct {
	controlPlane string
	setting      string
	category     customerlog.Category
}

// wait is the state of a stream that has read lines that are not delivered.
type wait struct {
	since time.Time
	fault string
}

// waiting is a collector of the ages of the oldest lines that are not delivered.
type waiting struct {
	now         func() time.Time
	description *prometheus.Desc
	mu          sync.Mutex
	waits       map[streamKey]wait
}

func newWaiting(now func() time.Time) *waiting {
	return &waiting{now: now, waits: map[streamKey]wait{}, description: prometheus.NewDesc("customer_logs_waiting_seconds",
		"Time for which the oldest batch, or the reading of diagnostic settings, waits, by whose fault it is; 0 if nothing waits.", []string{"fault"}, nil)}
}

// begin starts the time of a stream, unless it waits already.
func (w *waiting) begin(key streamKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.waits[key]; !ok {
		w.waits[key] = wait{w.now(), faultService}
	}
}

// fail sets why a stream waits.
func (w *waiting) fail(key streamKey, fault string) {
	w.begin(key)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits[key] = wait{w.waits[key].since, fault}
}

// done ends the time of a stream.
func (w *waiting) done(key streamKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waits, key)
}

// Describe implements prometheus.Collector.
func (w *waiting) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- w.description }

// Collect implements prometheus.Collector.
func (w *waiting) Collect(metrics chan<- prometheus.Metric) {
	oldest := map[string]float64{faultCustomer: 0, faultAzure: 0, faultService: 0}
	w.mu.Lock()
	now := w.now()
	for _, s := range w.waits {
		oldest[s.fault] = max(oldest[s.fault], now.Sub(s.since).Seconds())
	}
	w.mu.Unlock()
	for fault, seconds := range oldest {
		metrics <- prometheus.MustNewConstMetric(w.description, prometheus.GaugeValue, seconds, fault)
	}
}
