package drills

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// TestAlertHistory checks which alerts of a real Prometheus admin shows in the timeline of a cluster.
func TestAlertHistory(t *testing.T) {
	fires := func(name string, labels map[string]string) rule.Rule {
		return rule.Rule{Alert: name, Expr: "vector(1)", Labels: labels}
	}
	pending := fires("Pending", map[string]string{"severity": "page", "cluster_uid": "u1", "shard": "mgmt-1"})
	pending.For = "1h"
	history := startPrometheus(t, observability(t), []rule.Rule{
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
	})
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
