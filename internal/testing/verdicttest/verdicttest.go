// Package verdicttest holds states of clusters and the verdict about each. The tests of all users of package verdict compare them with the same
// table, so that a list, a page and an explanation cannot disagree.
package verdicttest

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// ClusterID and PoolID are the ARM resource IDs of the cluster and of its node pool.
const (
	ClusterID = "/subscriptions/00000000-0000-0000-0000-0000000000aa/resourceGroups/rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"
	PoolID    = ClusterID + "/nodePools/workers"
)

// Now is the time of all verdicts.
var Now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// Case is a cluster with its node pool, if any, and the verdict about each.
type Case struct {
	Cluster *csv1.Cluster
	Pool    *csv1.NodePool
	// Want and WantPool are the states. Concern is of the cluster with its node pool.
	Want, WantPool string
	Concern        verdict.Concern
}

// Reported returns the cluster as Cluster Service returns it, with the concern of the node pool.
func (c *Case) Reported() *csv1.Cluster {
	if c.Concern.Layer != "" {
		c.Cluster.Concern = &csv1.Concern{SubjectResourceId: c.Concern.SubjectID, Layer: c.Concern.Layer, State: c.Concern.State, Since: timestamppb.New(c.Concern.Since)}
	}
	return c.Cluster
}

// Cases returns the table.
func Cases() map[string]Case {
	const ready, installing = csv1.ClusterPhase_CLUSTER_PHASE_READY, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING
	poolReady := pool(csv1.NodePoolPhase_NODE_POOL_PHASE_READY, "Ready", "5 nodes are ready.")
	paused := cluster(ready, "Available")
	paused.Overrides = &csv1.ClusterOverrides{Pause: &csv1.ClusterPause{Time: stamp(time.Hour), Until: timestamppb.New(Now.Add(time.Hour)), Actor: &csv1.Actor{Name: "oncall", Reason: "repair"}}}
	resumed := cluster(ready, "Available")
	resumed.Overrides = &csv1.ClusterOverrides{Pause: &csv1.ClusterPause{Time: stamp(2 * time.Hour), Until: stamp(time.Hour)}}
	deleting := cluster(ready, "Available")
	deleting.DeleteTime = stamp(time.Minute)
	poolDeleting := pool(csv1.NodePoolPhase_NODE_POOL_PHASE_DELETING, "Ready", "5 nodes are ready.")
	poolDeleting.DeleteTime = stamp(time.Minute)
	return map[string]Case{
		"nothing is awaited": {Cluster: cluster(ready, "Available"), Pool: poolReady, Want: verdict.Ready, WantPool: verdict.Ready},
		"no node pool":       {Cluster: cluster(ready, "Available"), Want: verdict.Ready},
		"a node pool waits for nodes": {Cluster: cluster(ready, "Available"), Pool: pool(csv1.NodePoolPhase_NODE_POOL_PHASE_READY, "WaitingForNodes", "2 of 5 nodes are ready."),
			Want: verdict.Waiting, WantPool: verdict.Waiting, Concern: concern(PoolID, "node-pool", "WaitingForNodes", time.Minute)},
		"a node pool is installed": {Cluster: cluster(ready, "Available"), Pool: pool(csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, "WaitingForNodes", "0 of 5 nodes are ready."),
			Want: verdict.Waiting, WantPool: "Installing", Concern: concern(PoolID, "node-pool", "WaitingForNodes", time.Minute)},
		"a node pool is deleted": {Cluster: cluster(ready, "Available"), Pool: poolDeleting, Want: verdict.Waiting, WantPool: verdict.Deleting,
			Concern: concern(PoolID, verdict.LayerDeletion, "Deleting", time.Minute)},
		"the control plane waits": {Cluster: cluster(ready, "EtcdWaitingForQuorum"), Pool: poolReady, Want: verdict.Waiting, WantPool: verdict.Ready,
			Concern: concern(ClusterID, "control-plane", "EtcdWaitingForQuorum", time.Minute)},
		"the cluster is installed": {Cluster: cluster(installing, "WaitingForAvailable"), Want: "Installing", Concern: concern(ClusterID, "control-plane", "WaitingForAvailable", time.Minute)},
		"no layer reports what is awaited": {Cluster: cluster(csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, "Available"), Want: "Updating",
			Concern: concern(ClusterID, verdict.LayerClusterService, "UPDATING", time.Minute)},
		"the cluster failed":  {Cluster: cluster(csv1.ClusterPhase_CLUSTER_PHASE_FAILED, "Available"), Want: "Failed", Concern: concern(ClusterID, verdict.LayerClusterService, "FAILED", time.Minute)},
		"an SRE paused it":    {Cluster: paused, Pool: poolReady, Want: verdict.Paused, WantPool: verdict.Ready},
		"the pause has ended": {Cluster: resumed, Pool: poolReady, Want: verdict.Ready, WantPool: verdict.Ready},
		"the cluster is deleted": {Cluster: deleting, Pool: poolReady, Want: verdict.Deleting, WantPool: verdict.Ready,
			Concern: concern(ClusterID, verdict.LayerDeletion, "Deleting", time.Minute)},
	}
}

func stamp(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(Now.Add(-ago)) }

func concern(id, layer, state string, ago time.Duration) verdict.Concern {
	return verdict.Concern{SubjectID: id, Layer: layer, State: state, Since: Now.Add(-ago)}
}

func cluster(phase csv1.ClusterPhase, controlPlane string) *csv1.Cluster {
	return &csv1.Cluster{Uid: "00000000-0000-4000-8000-000000000001", ResourceId: ClusterID, Generation: 1, CreateTime: stamp(24 * time.Hour), Spec: &csv1.ClusterSpec{Name: "demo"},
		Status: &csv1.ClusterStatus{Phase: phase, ObservedGeneration: 1, ProvisionShard: "mgmt-1", Progress: []*csv1.LayerProgress{
			{Layer: "placement", State: "Placed", Since: stamp(time.Hour)},
			{Layer: "control-plane", State: controlPlane, Since: stamp(time.Minute)},
		}}}
}

// pool returns a node pool that wants five nodes.
func pool(phase csv1.NodePoolPhase, state, message string) *csv1.NodePool {
	p := &csv1.NodePool{Uid: "00000000-0000-4000-8000-000000000002", ClusterUid: "00000000-0000-4000-8000-000000000001", ResourceId: PoolID, Generation: 1, CreateTime: stamp(24 * time.Hour),
		Spec: &csv1.NodePoolSpec{Name: "workers", Size: &csv1.NodePoolSpec_Replicas{Replicas: 5}},
		Status: &csv1.NodePoolStatus{Phase: phase, ObservedGeneration: 1, Progress: []*csv1.LayerProgress{{Layer: "node-pool", State: state, Message: message, Since: stamp(time.Minute)}},
			Conditions: []*csv1.Condition{{Type: "AllNodesHealthy", Status: "False", Message: message, LastTransitionTime: stamp(time.Minute)}}}}
	return p
}
