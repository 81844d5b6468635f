package drills

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// TestAlertHistory checks which alerts of a real Prometheus admin shows in the timeline of a cluster.
func TestAlertHistory(t *testing.T) {
	programs := observability(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	fires := func(name string, labels map[string]string) rule.Rule {
		return rule.Rule{Alert: name, Expr: "vector(1)", Labels: labels}
	}
	pending := fires("Pending", map[string]string{"severity": "page", "cluster_uid": "u1", "shard": "mgmt-1"})
	pending.For = "1h"
	rules := write("rules.yaml", rule.Text("Alerts of a cluster, of shards and of the region.", []rule.Group{{Name: "history", Rules: []rule.Rule{
		fires("OfCluster", map[string]string{"severity": "ticket", "cluster_uid": "u1", "shard": "mgmt-1"}),
		fires("OfOtherCluster", map[string]string{"severity": "page", "cluster_uid": "u2", "shard": "mgmt-1"}),
		fires("OfShard", map[string]string{"severity": "ticket", "shard": "mgmt-1"}),
		fires("OfOtherShard", map[string]string{"severity": "page", "shard": "mgmt-2"}),
		fires("OfRegion", map[string]string{"severity": "page"}),
		fires("TicketOfRegion", map[string]string{"severity": "ticket"}),
		pending,
		{Record: "monitor_cluster_concern", Expr: "vector(1)", Labels: map[string]string{"cluster_uid": "u1", "concern": "slow"}},
		fires("OfConcern", map[string]string{"severity": "ticket", "concern": "slow"}),
		fires("OfOtherConcern", map[string]string{"severity": "ticket", "concern": "api_hangs"}),
	}}}))
	config := write("prometheus.yaml", fmt.Sprintf("global: {evaluation_interval: 1s}\nrule_files: [%q]\n", rules))
	address := serve(t, t.Context(), filepath.Join(programs, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	transport, err := alerts.Transport("")
	if err != nil {
		t.Fatal(err)
	}
	history, err := alerts.New("http://"+address, transport)
	if err != nil {
		t.Fatal(err)
	}
	eventually.Soon(t, "the history has what fires", func() error {
		now := time.Now()
		fired, err := history.Of(t.Context(), adminv1.Cluster{UID: "u1", ProvisionShard: "mgmt-1"}, now.Add(-5*time.Minute), now)
		if err != nil {
			return err
		}
		var got []string
		for _, a := range fired {
			got = append(got, fmt.Sprintf("%s %s %q %v %q, ended %v", a.Name, a.Severity, a.Shard, a.Cluster, a.Concern, !a.End.IsZero()))
		}
		slices.Sort(got)
		want := []string{`OfCluster ticket "mgmt-1" true "", ended false`, `OfConcern ticket "" false "slow", ended false`,
			`OfRegion page "" false "", ended false`, `OfShard ticket "mgmt-1" false "", ended false`}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}
		return nil
	})

}
