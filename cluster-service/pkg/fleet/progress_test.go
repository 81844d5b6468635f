package fleet_test

import (
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestNodePoolProgressNamesWhatIsAwaited checks the state and the message of the last progress entry of a node pool.
func TestNodePoolProgressNamesWhatIsAwaited(t *testing.T) {
	tests := map[string]struct {
		reason         string
		replicas       int64
		wanted         int32
		settled        bool
		change         func(*feedback.Observed)
		state, message string
	}{
		"Growing": {reason: "one of two nodes is ready", replicas: 1, wanted: 2, state: "WaitingForNodes", message: "1 of 2 nodes are ready."},
		"Unhealthy": {reason: "the size was reached, and then a node became unhealthy", replicas: 1, wanted: 2, settled: true,
			change: func(o *feedback.Observed) { *o = with(*o, feedback.AllNodes, "False") }, state: "NodesUnhealthy", message: "1 of 2 nodes are ready. So it is"},
		"Starting": {reason: "an autoscaled pool grows: one node has no machine yet, and the machine of another one boots", replicas: 1, wanted: 2, settled: true,
			change: func(o *feedback.Observed) {
				o.Conditions[feedback.AllNodes] = feedback.Condition{Status: "False", Reason: "NodeProvisioning,WaitingForNodeRef"}
			}, state: "WaitingForNodes", message: "1 of 2 nodes are ready."},
		"Starting and unhealthy": {reason: "one node starts, and another one does not report", replicas: 1, wanted: 2, settled: true,
			change: func(o *feedback.Observed) {
				o.Conditions[feedback.AllNodes] = feedback.Condition{Status: "False", Reason: "NodeConditionsFailed,WaitingForNodeRef", Message: "2 of 3 machines are not healthy"}
			}, state: "NodesUnhealthy", message: "1 of 2 nodes are ready. 2 of 3 machines are not healthy"},
		"Paused": {reason: "HyperShift reports the generation of a paused pool and does nothing", replicas: 2, wanted: 2, state: "Reconciling",
			message: "Waiting for HyperShift to act on the desired state.",
			change:  func(o *feedback.Observed) { *o = with(*o, feedback.ReconciliationActive, "False") }},
		"Shrinking": {reason: "nodes are removed after they are drained", replicas: 3, wanted: 2, state: "ScalingDown",
			message: "3 of 2 nodes are ready. Surplus nodes are drained before they are removed."},
		"Upgrading": {reason: "nodes are counted by their versions", replicas: 2, wanted: 2, state: "UpdatingVersion",
			message: "1 of 3 nodes run 4.21.4; 2 of 2 nodes are ready.",
			change: func(o *feedback.Observed) {
				*o = with(*o, feedback.UpdatingVersion, "True")
				o.NodeVersions = []feedback.NodeVersion{{Version: "4.20.16", Ready: 1, Unready: 1}, {Version: "4.21.4", Ready: 1}}
			}},
		"Replaced": {reason: "another configuration, of the same version", replicas: 2, wanted: 2, state: "ReplacingNodes",
			message: "Nodes are replaced one by one because their machine template or configuration changed; 2 of 2 nodes are ready.",
			change:  func(o *feedback.Observed) { *o = with(*o, feedback.UpdatingConfig, "True") }},
		"Skew": {reason: "HyperShift reports the skew", replicas: 2, wanted: 2, state: "UnsupportedVersionSkew", message: "So it is",
			change: func(o *feedback.Observed) { *o = with(*o, feedback.VersionSkew, "False") }},
		"Ready": {reason: "nothing is awaited", replicas: 2, wanted: 2, state: "Ready", message: "2 nodes are ready."},
		"Empty": {reason: "the desired size is 0", state: "Ready", message: "0 nodes are ready."},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			aggregate.Pools[0].Spec.Size = &csv1.NodePoolSpec_Replicas{Replicas: tc.wanted}
			if tc.settled {
				aggregate.Pools[0].Status.ObservedGeneration = 1
			}
			o := with(applied("pool-1"), feedback.AllMachines, "True")
			o.Replicas, o.Version = tc.replicas, "4.21.4"
			if tc.change != nil {
				tc.change(&o)
			}
			observe(aggregate.Work(fleet.NodePoolWork, poolUID), o)
			settle(t, aggregate, versions{})
			progress := aggregate.Pools[0].Status.GetProgress()
			if got := progress[len(progress)-1]; got.GetState() != tc.state || got.GetMessage() != tc.message {
				t.Errorf("%s: %s, want %s: %s: %s", got.GetState(), got.GetMessage(), tc.state, tc.message, tc.reason)
			}
		})
	}
}
