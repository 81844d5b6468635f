package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/hosted"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// TestMonitorNamesCauses breaks the APIs of customers in five ways. monitor, its alert, the explanation, the journal and the timeline name the
// cause of each, and that it ended. TestAlertsNameCauses of test/drills has the alerts of a real Prometheus.
func TestMonitorNamesCauses(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 12*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-0000000000c5", "causes")
	reader := engineer(t, "reader")
	for _, fault := range hosted.Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			id := c.ClusterID("broken-" + fault.Name)
			if _, err := c.Put(ctx, id, c.ClusterBody("broken-"+fault.Name)); err != nil {
				t.Fatal(err)
			}
			cluster, err := adminclient.Get(ctx, reader, adminv1.ReadCluster, nil, id)
			if err != nil {
				t.Fatal(err)
			}
			server, err := hosted.Find(region.Endpoints(), regionDir, *cluster)
			if err != nil {
				t.Fatal(err)
			}
			awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", nil)

			running, err := fault.Begin(ctx, server)
			if err != nil {
				t.Fatal(err)
			}
			end := func() {
				if err := running.End(ctx); err != nil {
					t.Error(err)
				}
			}
			defer end()
			explained := awaitHealth(t, ctx, reader, id, fault.API, fault.Concern.Kind, func() {
				if err := running.Provoke(ctx, false); err != nil {
					t.Fatal(err)
				}
			})
			if got := explained.Health.Concerns[0]; got.Summary != fault.Concern.Summary || !strings.Contains(strings.Join(strings.Fields(explained.Text()), " "), fault.Concern.Summary) {
				t.Errorf("the concern is %+v, and the explanation:\n%s", got, explained.Text())
			}
			labels := concernLabels(t, ctx, cluster.UID)
			if labels["concern"] != fault.Concern.Kind || labels["fault"] != "service" {
				t.Errorf("monitor exports the concern %v, want %s", labels, fault.Concern.Kind)
			}
			alertFires(t, labels)

			end()
			awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", nil)
			journal, err := adminclient.Get(ctx, reader, adminv1.ReadJournal, nil, id)
			if err != nil {
				t.Fatal(err)
			}
			timeline, err := adminclient.Get(ctx, reader, adminv1.ReadTimeline, nil, id)
			if err != nil {
				t.Fatal(err)
			}
			for event, text := range map[string]string{adminv1.JournalConcernBegan: " began", adminv1.JournalConcernEnded: " ended"} {
				if !slices.ContainsFunc(journal.Items, func(e adminv1.JournalEntry) bool { return e.Event == event && e.Kind == fault.Concern.Kind }) {
					t.Errorf("the journal has no %s %s: %+v", event, fault.Concern.Kind, journal.Items)
				}
				if !slices.ContainsFunc(timeline.Entries, func(e adminv1.TimelineEntry) bool {
					return e.Kind == adminv1.TimelineConcern && strings.Contains(e.Summary, fault.Concern.Kind+text)
				}) {
					t.Errorf("the timeline has no concern %s that%s: %+v", fault.Concern.Kind, text, timeline.Entries)
				}
			}
			if misleading := fault.Misleading(journal.Items); len(misleading) > 0 {
				t.Errorf("monitor also named %v: %+v", misleading, journal.Items)
			}
			if err := c.Delete(ctx, id); err != nil {
				t.Fatal(err)
			}
			awaitNotMonitored(t, ctx, cluster.UID)
		})
	}
}

// awaitHealth waits until the explanation of a cluster has a state of its API and a concern, or none. again runs before each attempt.
func awaitHealth(t *testing.T, ctx context.Context, reader *adminclient.Client, id, api, concern string, again func()) *adminv1.Explanation {
	t.Helper()
	var explained *adminv1.Explanation
	eventually.Before(ctx, t, fmt.Sprintf("the API is %s with the concern %q", api, concern), func() (err error) {
		if again != nil {
			again()
		}
		if explained, err = adminclient.Get(ctx, reader, adminv1.ReadExplanation, nil, id); err != nil {
			return err
		}
		got := ""
		if h := explained.Health; h != nil && len(h.Concerns) > 0 {
			got = h.Concerns[0].Kind
		}
		if explained.Health == nil || explained.Health.API != api || got != concern {
			return fmt.Errorf("monitor states %+v", explained.Health)
		}
		return nil
	})
	return explained
}

// concernLabels returns the labels of the first concern that monitor exports for a cluster.
func concernLabels(t *testing.T, ctx context.Context, uid string) map[string]string {
	t.Helper()
	for _, metric := range scrape(t, ctx, region.Endpoints().Ops["monitor"])["monitor_cluster_concern"].GetMetric() {
		if labels := labelsOf(metric); labels["cluster_uid"] == uid {
			return labels
		}
	}
	return nil
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

// alertFires checks with promtool that the alert of concerns fires for a series after half an hour, and names the concern.
func alertFires(t *testing.T, labels map[string]string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	promtool := filepath.Join(filepath.Dir(nightly.Program(t, "observability", "observability/amtool")), "promtool")
	file := filepath.Join(t.TempDir(), "concern.yaml")
	test := fmt.Sprintf(`rule_files: [%q]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - series: monitor_cluster_concern{cluster_uid=%q,concern=%q,fault=%q}
    values: "0x40"
  promql_expr_test:
  - expr: ALERTS{alertname="ClustersWithConcern",alertstate="firing"}
    eval_time: 32m
    exp_samples:
    - labels: ALERTS{alertname="ClustersWithConcern",alertstate="firing",concern=%q,severity="ticket"}
      value: 1
`, filepath.Join(root, "monitor/deploy/alerts/hosted-apis.rules.yaml"), labels["cluster_uid"], labels["concern"], labels["fault"], labels["concern"])
	if err := os.WriteFile(file, []byte(test), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("the alert of the series %v: %v\n%s", labels, err, output)
	}
}
