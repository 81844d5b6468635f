package server_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestStatusShowsLayersAndConditions checks that a status has the layers in their order, which of them are done, and the conditions by name.
func TestStatusShowsLayersAndConditions(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	since := time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)
	h.fleet.clusters = []*clusterservicev1.Cluster{{Uid: uid, ResourceId: resourceID, Generation: 4, Status: &clusterservicev1.ClusterStatus{
		Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_UPDATING, ObservedGeneration: 3,
		Progress:   []*clusterservicev1.LayerProgress{{Layer: "placement", State: "Placed", Since: timestamppb.New(since)}, {Layer: "control-plane", State: "Updating", Message: "It waits."}},
		Conditions: []*clusterservicev1.Condition{{Type: "Progressing", Status: "True"}, {Type: "Available", Status: "False", Reason: "R", Message: "M", LastTransitionTime: timestamppb.New(since)}},
	}}}
	got, _ := read[adminv1.ClusterStatus](t, h, "/clusters/"+uid+"/status")
	want := adminv1.ClusterStatus{Time: got.Time, Cluster: got.Cluster, Generation: 4, ObservedGeneration: 3,
		Layers:     []adminv1.LayerStatus{{Layer: "placement", State: "Placed", Since: since, Done: true}, {Layer: "control-plane", State: "Updating", Message: "It waits."}},
		Conditions: []adminv1.ConditionStatus{{Type: "Available", Status: "False", Reason: "R", Message: "M", LastTransitionTime: since}, {Type: "Progressing", Status: "True"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestListOfFleetIsFilteredByClusterService checks that the filters of the list of all clusters are those of Cluster Service.
func TestListOfFleetIsFilteredByClusterService(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.fleet.lists = nil
	read[adminv1.ClusterList](t, h, "/clusters?shard=mgmt-1&phase=ready,Failed&version=4.19.3&pageSize=7")
	want := []clusterservicev1.ClusterPhase{clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, clusterservicev1.ClusterPhase_CLUSTER_PHASE_FAILED}
	if n := len(h.fleet.lists); n != 1 {
		t.Fatalf("%d requests to Cluster Service, want one", n)
	}
	if asked := h.fleet.lists[0]; asked.GetProvisionShard() != "mgmt-1" || !slices.Equal(asked.GetPhases(), want) || asked.GetVersion() != "4.19.3" || asked.GetPageSize() != 7 {
		t.Errorf("asked %v", asked)
	}
}
