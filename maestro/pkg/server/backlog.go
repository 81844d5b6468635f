package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

var (
	backlogWaiting = prometheus.NewDesc("maestro_outbox_waiting", "Deliveries not confirmed by the agent.", []string{"consumer", "lane"}, nil)
	backlogParked  = prometheus.NewDesc("maestro_outbox_parked", "Deliveries put aside because they cannot be sent.", []string{"consumer", "lane"}, nil)
	backlogOldest  = prometheus.NewDesc("maestro_outbox_oldest_seconds", "Age of the oldest unconfirmed change.", []string{"consumer", "lane"}, nil)
)

// backlog shows the outbox, read when it is asked for: two series of each per consumer.
type backlog struct{ store *store.Store }

// Describe is the collector's API.
func (b *backlog) Describe(out chan<- *prometheus.Desc) {
	out <- backlogWaiting
	out <- backlogParked
	out <- backlogOldest
}

// Collect is the collector's API.
func (b *backlog) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	list, err := b.store.Backlogs(ctx)
	if err != nil {
		return
	}
	lanes := map[store.Lane]string{store.NewWork: "new", store.Resync: "resync"}
	for _, l := range list {
		out <- prometheus.MustNewConstMetric(backlogWaiting, prometheus.GaugeValue, float64(l.Waiting), l.Consumer, lanes[l.Lane])
		out <- prometheus.MustNewConstMetric(backlogParked, prometheus.GaugeValue, float64(l.Parked), l.Consumer, lanes[l.Lane])
		out <- prometheus.MustNewConstMetric(backlogOldest, prometheus.GaugeValue, l.OldestSeconds, l.Consumer, lanes[l.Lane])
	}
}
