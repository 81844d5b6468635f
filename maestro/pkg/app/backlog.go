package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

var (
	backlogWaiting = prometheus.NewDesc("maestro_outbox_waiting", "Unconfirmed deliveries.", []string{"consumer", "lane"}, nil)
	backlogParked  = prometheus.NewDesc("maestro_outbox_parked", "Deliveries that cannot be sent.", []string{"consumer", "lane"}, nil)
	backlogOldest  = prometheus.NewDesc("maestro_outbox_oldest_seconds", "Age of the oldest unconfirmed change in seconds.", []string{"consumer", "lane"}, nil)
)

// backlog collects the figures of the outbox: two series of each metric per consumer, one per lane.
type backlog struct{ store *store.Store }

// Describe implements prometheus.Collector.
func (b *backlog) Describe(out chan<- *prometheus.Desc) {
	out <- backlogWaiting
	out <- backlogParked
	out <- backlogOldest
}

// Collect implements prometheus.Collector. It reads the database.
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
