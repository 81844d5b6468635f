package fleet_test

import (
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestConditionsOfParts checks that a cluster has the conditions of the parts of its HostedCluster, since the time of the last
// change, and none while the HostedCluster does not exist.
func TestConditionsOfParts(t *testing.T) {
	aggregate := placed(t)
	work := aggregate.Work(fleet.HostedCluster, "")
	at := start
	report := func(observed feedback.Observed) {
		t.Helper()
		work.Observed, at = observed, at.Add(time.Hour)
		if err := region.Settle(at, aggregate, versions{}); err != nil {
			t.Fatal(err)
		}
	}
	withParts := func(etcd string) feedback.Observed {
		observed := hosted("cluster-1", "True", "Completed")
		for _, part := range feedback.PartConditions {
			observed = with(observed, part, "True")
		}
		return with(observed, feedback.EtcdAvailable, etcd)
	}
	report(withParts("True"))
	changed := at
	report(withParts("False"))
	for _, part := range feedback.PartConditions {
		want, since := "True", changed
		if part == feedback.EtcdAvailable {
			want, since = "False", at
		}
		if c := conditionOf(aggregate.Cluster.Status.GetConditions(), part); c.GetStatus() != want || c.GetReason() != "Because" || !c.GetLastTransitionTime().AsTime().Equal(since) {
			t.Errorf("%s: %v, want %s since %v", part, c, want, since)
		}
	}
	report(missing())
	for _, part := range feedback.PartConditions {
		if c := conditionOf(aggregate.Cluster.Status.GetConditions(), part); c != nil {
			t.Errorf("without a HostedCluster: %v", c)
		}
	}
}
