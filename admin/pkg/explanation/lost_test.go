package explanation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestLostControlPlaneIsNeverReady explains a cluster whose control plane was removed, in each state of its successor. Whatever the
// other layers report, an SRE must act.
func TestLostControlPlaneIsNeverReady(t *testing.T) {
	for state, replacement := range map[string]string{controlPlaneBeingRemoved: "", controlPlaneRemoved: "", controlPlaneReplaced: "b0f6bb0c-6d57-4f12-9d1e-2f4c8d0e7a55"} {
		t.Run(state, func(t *testing.T) {
			f := createdYesterday(cluster(func(c *csv1.Cluster) {
				c.Status.Phase = csv1.ClusterPhase_CLUSTER_PHASE_LOST
				c.Status.ControlPlane = &csv1.ControlPlaneIdentity{Uid: "5a9b1d0c-3c36-4e0b-8c1a-1df1f5ed2a10", LostTime: stamp(4 * time.Minute), ReplacementUid: replacement}
				c.Status.Removals = []*csv1.ObjectRemoval{{Kind: "HostedCluster", Namespace: "ocm-local-x", Name: "demo", ProvisionShard: "mgmt-1", RemoveTime: stamp(4 * time.Minute)}}
				if replacement != "" {
					c.Status.Removals[0].AppliedAgainTime = stamp(3 * time.Minute)
				}
				c.Status.Progress[3] = layer("control-plane", state, "It was removed.", 4*time.Minute)
			}))
			// The operation of the customer succeeded long ago, and nothing is in progress.
			f.records[0].provisioningState = "Succeeded"
			explained := f.explain()
			item := explained.Items[0]
			if len(explained.Items) != 1 || item.Code != adminv1.ExplanationControlPlaneLost || item.Responsible != adminv1.PartySRE || item.State != state || item.Command == "" {
				t.Errorf("%+v", explained.Items)
			}
			if accepts := strings.Contains(item.Command, "accept-control-plane"); accepts != (replacement != "") {
				t.Errorf("command %q", item.Command)
			}
			if !slices.Contains(codes(explained.Facts), adminv1.SentenceRemoval) {
				t.Errorf("the removal is missing: %v", explained.Facts)
			}
			t.Log(explained.Text())
		})
	}
}

// TestLostNamespaceNamesItsSuccessor explains a cluster whose control-plane namespace was removed while its HostedCluster stayed, or
// together with it. The UID that an SRE accepts must be in the evidence.
func TestLostNamespaceNamesItsSuccessor(t *testing.T) {
	const hosted, namespace = "b0f6bb0c-6d57-4f12-9d1e-2f4c8d0e7a55", "0c5e3f3e-55c3-4f5f-b8a0-7b8c2f9a6d31"
	tests := map[string]struct {
		state string
		cp    *csv1.ControlPlaneIdentity
		want  []string
	}{
		"Namespace": {controlPlaneReplaced, &csv1.ControlPlaneIdentity{ReplacementNamespaceUid: namespace}, []string{namespace}},
		"Both":      {controlPlaneReplaced, &csv1.ControlPlaneIdentity{ReplacementUid: hosted, ReplacementNamespaceUid: namespace}, []string{hosted, namespace}},
		"None":      {controlPlaneRemoved, &csv1.ControlPlaneIdentity{}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cp := tc.cp
			cp.Uid, cp.NamespaceUid, cp.LostTime = "5a9b1d0c-3c36-4e0b-8c1a-1df1f5ed2a10", "7d1d7c3e-1c5b-4c51-9a0e-6c4f0f0a9b22", stamp(4*time.Minute)
			f := createdYesterday(cluster(func(c *csv1.Cluster) {
				c.Status.Phase, c.Status.ControlPlane = csv1.ClusterPhase_CLUSTER_PHASE_LOST, cp
				c.Status.Progress[3] = layer("control-plane", tc.state, "It was removed.", 4*time.Minute)
			}))
			explained := f.explain()
			item := explained.Items[0]
			if item.Code != adminv1.ExplanationControlPlaneLost || len(item.Evidence) == 0 {
				t.Fatalf("%+v", item)
			}
			for _, uid := range append([]string{cp.Uid, cp.NamespaceUid}, tc.want...) {
				if !strings.Contains(item.Evidence[0].Text, uid) {
					t.Errorf("the evidence does not name %s: %s", uid, item.Evidence[0].Text)
				}
			}
			t.Log(explained.Text())
		})
	}
}

// TestRemovalsOfReadyClusterAreListed explains a cluster whose Secret was removed and applied again, and one with an old removal.
func TestRemovalsOfReadyClusterAreListed(t *testing.T) {
	for name, tc := range map[string]struct {
		age  time.Duration
		want bool
	}{"Recent": {time.Hour, true}, "Old": {30 * 24 * time.Hour, false}} {
		f := createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.Removals = []*csv1.ObjectRemoval{{Kind: "Secret", Namespace: "ocm-local-x", Name: "pull-secret", ProvisionShard: "mgmt-1",
				RemoveTime: stamp(tc.age), AppliedAgainTime: timestamppb.New(ago(tc.age).Add(time.Second))}}
		}))
		explained := f.explain()
		if got := slices.Contains(codes(explained.Facts), adminv1.SentenceRemoval); explained.Items[0].Code != adminv1.ExplanationReady || got != tc.want {
			t.Errorf("%s: %s", name, explained.Text())
		}
	}
}

// TestRemovedNodePoolIsExplained explains a node pool whose NodePool does not exist on the management cluster.
func TestRemovedNodePoolIsExplained(t *testing.T) {
	f := createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
		f.nodePools = []*csv1.NodePool{pool("workers", func(p *csv1.NodePool) {
			p.Status.Progress[2] = layer("management-cluster", "Removed", "Removed.", 10*time.Second)
		})}
		f.records = append(f.records, newRecord(f.nodePools[0].ResourceId, 1, "Succeeded"))
	})
	item := f.explain().Items[0]
	if item.Code != adminv1.ExplanationWaiting || item.State != "Removed" || item.Responsible != adminv1.PartyService || item.Overdue {
		t.Errorf("%+v", item)
	}
}
