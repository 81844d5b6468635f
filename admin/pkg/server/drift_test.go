package server_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestRepairedRemovalsAreListed checks that the list of differences has the removals that the agents repaired.
func TestRepairedRemovalsAreListed(t *testing.T) {
	h := newPopulated(t)
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	h.fleet.repaired = []*clusterservicev1.RepairedRemoval{{ClusterUid: uid, ClusterResourceId: "/demo", Removal: &clusterservicev1.ObjectRemoval{Kind: "NodePool", Namespace: "ocm-local-x", Name: "workers",
		Uid: "removed", ProvisionShard: "mgmt-1", RemoveTime: timestamppb.New(at), AppliedAgainTime: timestamppb.New(at.Add(2 * time.Second))}}}
	list, _ := read[adminv1.DriftList](t, h, "/drift")
	want := []adminv1.RepairedRemoval{{Kind: "NodePool", Namespace: "ocm-local-x", Name: "workers", UID: "removed", Shard: "mgmt-1", ResourceID: "/demo", ClusterUID: uid, Removed: at, AppliedAgain: at.Add(2 * time.Second)}}
	if diff := cmp.Diff(want, list.RepairedRemovals); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
