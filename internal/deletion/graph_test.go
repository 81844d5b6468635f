package deletion_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
)

const (
	clusterID = "/subscriptions/s/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c"
	poolID    = clusterID + "/nodePools/np1"
)

var accepted = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// dumped returns a dump of the cluster that was taken some time after the deletion was accepted.
func dumped(after time.Duration, arm *adminv1.ARMLayer, fleet *adminv1.FleetLayer) *adminv1.Dump {
	return &adminv1.Dump{TakenAt: accepted.Add(after), Cluster: adminv1.Cluster{UID: "u", ResourceID: clusterID}, ARM: arm, ClusterService: fleet}
}

func armState(uid string, state hub.ProvisioningState) adminv1.ARMState {
	return adminv1.ARMState{UID: uid, ProvisioningState: state, Modified: accepted}
}

func deletes(id, uid string, status hub.ProvisioningState, notes ...adminv1.DeletionNote) adminv1.ARMOperation {
	return adminv1.ARMOperation{OperationID: "op-" + uid, Request: "Delete", ResourceID: id, UID: uid, Status: status, StartTime: accepted, Deletion: notes}
}

func fleetCluster(phase csv1.ClusterPhase, deleted bool) *adminv1.FleetLayer {
	c := &csv1.Cluster{Uid: "u", ResourceId: clusterID, Status: &csv1.ClusterStatus{Phase: phase}}
	if deleted {
		state := csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
		if phase == csv1.ClusterPhase_CLUSTER_PHASE_DELETED {
			state = csv1.DeletionStepState_DELETION_STEP_STATE_DONE
		}
		c.DeleteTime = timestamppb.New(accepted.Add(time.Second))
		c.Status.Deletion = &csv1.Deletion{Steps: []*csv1.DeletionStep{{Name: "hosted-cluster", State: state,
			Since: timestamppb.New(accepted.Add(time.Minute)), StuckTime: timestamppb.New(accepted.Add(26 * time.Minute))}}}
	}
	return &adminv1.FleetLayer{Cluster: &adminv1.FleetCluster{Of: c}}
}

func TestGraphs(t *testing.T) {
	deleting := &adminv1.ARMCluster{ARMState: armState("u", hub.Deleting)}
	pool := adminv1.ARMNodePool{ARMState: armState("p", hub.Deleting)}
	pool.Resource.ID = poolID
	ready := adminv1.ARMNodePool{ARMState: armState("p", hub.Succeeded)}
	ready.Resource.ID = poolID
	fleetPool := func(phase csv1.NodePoolPhase) *adminv1.FleetLayer {
		layer := fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_READY, false)
		layer.NodePools = []adminv1.Message[*csv1.NodePool]{{Of: &csv1.NodePool{Uid: "p", ResourceId: poolID, DeleteTime: timestamppb.New(accepted), Status: &csv1.NodePoolStatus{Phase: phase}}}}
		return layer
	}
	ended := accepted.Add(time.Hour)
	tests := map[string]struct {
		reason string
		dump   *adminv1.Dump
		want   []string
	}{
		"NotDeleted": {
			reason: "a cluster that is not being deleted has no graph",
			dump: dumped(time.Minute, &adminv1.ARMLayer{Cluster: &adminv1.ARMCluster{ARMState: armState("u", hub.Succeeded)}},
				fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_READY, false)),
		},
		"Accepted": {
			reason: "neither the children nor Cluster Service have changed yet",
			dump: dumped(3*time.Minute, &adminv1.ARMLayer{Cluster: deleting, NodePools: []adminv1.ARMNodePool{ready}, Operations: []adminv1.ARMOperation{
				deletes(clusterID, "u", hub.Deleting, adminv1.DeletionNote{Kind: deletion.StepFleetAccepted, Attempts: 7, LastError: "unavailable"})}},
				fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_READY, false)),
			want: []string{"cluster op-u", "children-marked running stuck", "fleet-accepted running stuck 7 unavailable", "fleet-deleted waiting", "billing-ended waiting",
				"children-removed waiting", "documents-removed waiting"},
		},
		"FleetDeletes": {
			reason: "Cluster Service's own steps are between fleet-accepted and fleet-deleted",
			dump: dumped(3*time.Minute, &adminv1.ARMLayer{Cluster: deleting, NodePools: []adminv1.ARMNodePool{pool}, Operations: []adminv1.ARMOperation{deletes(clusterID, "u", hub.Deleting)}},
				fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_DELETING, true)),
			want: []string{"cluster op-u", "children-marked done", "fleet-accepted done", "hosted-cluster running", "fleet-deleted running", "billing-ended waiting",
				"children-removed waiting", "documents-removed waiting"},
		},
		"BillingNotEnded": {
			reason: "nothing is left in the fleet, and the end of the billing is not recorded",
			dump: dumped(4*time.Minute, &adminv1.ARMLayer{Cluster: deleting, Billing: &adminv1.ARMBilling{}, Operations: []adminv1.ARMOperation{
				deletes(clusterID, "u", hub.Deleting, adminv1.DeletionNote{Kind: deletion.StepBillingEnded, Attempts: 9, LastError: "throttled"})}},
				fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_DELETED, true)),
			want: []string{"cluster op-u", "children-marked done", "fleet-accepted done", "hosted-cluster done", "fleet-deleted done", "billing-ended running stuck 9 throttled",
				"children-removed waiting", "documents-removed waiting"},
		},
		"DocumentsLeft": {
			reason: "children are removed before the cluster",
			dump: dumped(2*time.Minute, &adminv1.ARMLayer{Cluster: deleting, NodePools: []adminv1.ARMNodePool{pool}, Billing: &adminv1.ARMBilling{DeletionTime: &ended},
				Operations: []adminv1.ARMOperation{deletes(clusterID, "u", hub.Deleting)}}, fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_DELETED, true)),
			want: []string{"cluster op-u", "children-marked done", "fleet-accepted done", "hosted-cluster done", "fleet-deleted done", "billing-ended done",
				"children-removed running", "documents-removed waiting"},
		},
		"Done": {
			reason: "the operation and the tombstone outlive the deletion",
			dump:   dumped(time.Hour, &adminv1.ARMLayer{Operations: []adminv1.ARMOperation{deletes(clusterID, "u", hub.Succeeded)}}, fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_DELETED, true)),
			want: []string{"cluster done", "children-marked done", "fleet-accepted done", "hosted-cluster done", "fleet-deleted done", "billing-ended done",
				"children-removed done", "documents-removed done"},
		},
		"OperationFailed": {
			reason: "the deletion continues after its operation has exceeded the deadline",
			dump: dumped(13*time.Hour, &adminv1.ARMLayer{Cluster: &adminv1.ARMCluster{ARMState: armState("u", hub.Failed)},
				Operations: []adminv1.ARMOperation{deletes(clusterID, "u", hub.Failed)}}, fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_DELETING, true)),
			want: []string{"cluster", "children-marked done", "fleet-accepted done", "hosted-cluster running", "fleet-deleted running stuck", "billing-ended waiting",
				"children-removed waiting", "documents-removed waiting"},
		},
		"OnlyClusterServiceRead": {
			reason: "a layer that could not be read has no steps",
			dump:   dumped(time.Minute, nil, fleetCluster(csv1.ClusterPhase_CLUSTER_PHASE_DELETING, true)),
			want:   []string{"cluster", "hosted-cluster running"},
		},
		"OnlyARMRead": {
			reason: "Cluster Service accepted the deletion before it became unavailable",
			dump: dumped(time.Minute, &adminv1.ARMLayer{Cluster: &adminv1.ARMCluster{ARMState: adminv1.ARMState{UID: "u", ProvisioningState: hub.Deleting, Fleet: adminv1.ARMFleetState{Phase: "Deleting"}}},
				Operations: []adminv1.ARMOperation{deletes(clusterID, "u", hub.Deleting)}}, nil),
			want: []string{"cluster op-u", "children-marked done", "fleet-accepted done", "fleet-deleted running", "billing-ended waiting", "children-removed waiting", "documents-removed waiting"},
		},
		"NodePool": {
			reason: "only the deleted node pool has a graph",
			dump: dumped(3*time.Minute, &adminv1.ARMLayer{Cluster: &adminv1.ARMCluster{ARMState: armState("u", hub.Succeeded)}, NodePools: []adminv1.ARMNodePool{pool},
				Operations: []adminv1.ARMOperation{deletes(poolID, "p", hub.Deleting)}}, fleetPool(csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED)),
			want: []string{"nodePool op-p", "node-pool/np1/fleet-accepted done", "node-pool/np1/fleet-deleted done", "node-pool/np1/documents-removed running stuck"},
		},
		"NodePoolDone": {
			reason: "a node pool whose deletion has ended has no graph",
			dump:   dumped(time.Hour, &adminv1.ARMLayer{Cluster: &adminv1.ARMCluster{ARMState: armState("u", hub.Succeeded)}}, fleetPool(csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED)),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range deletion.Graphs(tc.dump) {
				line := strings.TrimSpace(g.Kind + " " + g.OperationID)
				if g.Done {
					line += " done"
				}
				got = append(got, line)
				for _, s := range g.Steps {
					line := s.GetName() + " " + strings.ToLower(strings.TrimPrefix(s.GetState().String(), "DELETION_STEP_STATE_"))
					if s.GetStuck() {
						line += " stuck"
					}
					if s.GetLastError() != "" {
						line += " " + string(rune('0'+s.GetAttempts())) + " " + s.GetLastError()
					}
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
