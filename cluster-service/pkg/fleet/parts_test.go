package fleet_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
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

// TestObservationFromInside checks that a cluster has the last report of its management cluster's prober, and none without one.
func TestObservationFromInside(t *testing.T) {
	aggregate := placed(t)
	work := aggregate.Work(fleet.HostedCluster, "")
	report := hostedreport.InsideReport{State: hostedreport.InsideUnavailable, Since: start, Check: "livez", Outcome: "etcd", Detail: "status 500: etcd", CertificateEnd: start.Add(time.Hour), Observed: start.Add(time.Minute)}
	for _, want := range []*csv1.InsideObservation{
		{State: "unavailable", Since: timestamppb.New(report.Since), Check: "livez", Outcome: "etcd", Detail: "status 500: etcd",
			CertificateEndTime: timestamppb.New(report.CertificateEnd), ObservedTime: timestamppb.New(report.Observed)},
		nil,
	} {
		work.Observed = hosted("cluster-1", "True", "Completed")
		if want != nil {
			work.Observed.Inside = &report
		}
		if err := region.Settle(start.Add(time.Hour), aggregate, versions{}); err != nil {
			t.Fatal(err)
		}
		if got := aggregate.Cluster.Status.GetInsideObservation(); !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
