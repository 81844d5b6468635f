package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/partition"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// clusterSeries returns the values of the metrics that monitor exports for a cluster, by metric and by the label reason or concern.
func clusterSeries(t *testing.T, ctx context.Context, uid string) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	for name, family := range scrape(t, ctx, region.Endpoints().Ops["monitor"]) {
		for _, metric := range family.GetMetric() {
			found, key := false, name
			for _, label := range metric.GetLabel() {
				found = found || label.GetName() == "cluster_uid" && label.GetValue() == uid
				if label.GetName() == "reason" || label.GetName() == "concern" {
					key += " " + label.GetValue()
				}
			}
			if found {
				series[key] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return series
}

// awaitMonitored waits until monitor has reached the API of a ready cluster with its serving certificate verified.
func awaitMonitored(t *testing.T, ctx context.Context, uid string) {
	t.Helper()
	eventually.Before(ctx, t, "monitor sees the API of the cluster", func() error {
		series := clusterSeries(t, ctx, uid)
		end := time.Unix(int64(series["monitor_cluster_certificate_end_seconds"]), 0)
		if series["monitor_cluster_api_up"] != 1 || series["monitor_cluster_probes_total"] < 1 || series["monitor_cluster_info"] != 1 || end.Before(time.Now()) {
			return fmt.Errorf("monitor exports %v", series)
		}
		if len(series) > 10 {
			t.Errorf("monitor exports %d series for a cluster: %v", len(series), series)
		}
		return nil
	})
}

// awaitNotMonitored waits until monitor exports nothing of a deleted cluster, and its journal has nothing.
func awaitNotMonitored(t *testing.T, ctx context.Context, uid string) {
	t.Helper()
	db := storeAs(t, "admin")
	eventually.Before(ctx, t, "monitor has forgotten the cluster", func() error {
		if record, _, err := db.HealthRecord(ctx, int(partition.Of(uid, database.MonitorGroups)), uid); err != nil || record != nil {
			return fmt.Errorf("the journal has %+v, %w", record, err)
		}
		if series := clusterSeries(t, ctx, uid); len(series) > 0 {
			return fmt.Errorf("monitor exports %v", series)
		}
		return nil
	})
}
