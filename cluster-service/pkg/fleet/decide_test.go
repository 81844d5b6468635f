package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	clusterUID = "0b5e7ad4-6d0c-4b0c-9f8f-3c1f6a2d7e10"
	poolUID    = "7d8f8c57-9b7e-4b57-8f3e-1f0f3b0f7a11"
)

var (
	start  = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	region = fleet.Region{BaseDomain: "example.test", IssuerBase: "https://oidc.example.test", EndpointURLs: true}
)

// versions is a Renderer whose digests depend on the generations only.
type versions struct{}

func (versions) OmittedRanges(*fleet.Cluster) []string { return nil }

func (versions) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	if p := t.Pool(w.OwnerUID); p != nil {
		return fmt.Sprintf("pool-%d", p.Generation), nil
	}
	if w.Kind == fleet.Namespaces {
		return "namespaces", nil
	}
	return fmt.Sprintf("cluster-%d", t.Cluster.Generation), nil
}

// placed returns a placed cluster with one node pool of two replicas, settled once.
func placed(t *testing.T) *fleet.ClusterAggregate {
	t.Helper()
	aggregate := &fleet.ClusterAggregate{
		Cluster: &fleet.Cluster{UID: clusterUID, Generation: 1, Shard: "mgmt-1", CreateTime: start, Spec: &csv1.ClusterSpec{Name: "c"},
			Release: fleet.Release{Version: "4.21.4", Image: "image-4.21.4"}, Status: &csv1.ClusterStatus{ClusterId: fleet.ClusterID(clusterUID), BaseDomainPrefix: "p"}},
		Pools: []*fleet.NodePool{{UID: poolUID, ClusterUID: clusterUID, Generation: 1, Release: fleet.Release{Version: "4.21.4", Image: "image-4.21.4"},
			Spec: &csv1.NodePoolSpec{Name: "np", Size: &csv1.NodePoolSpec_Replicas{Replicas: 2}}, Status: &csv1.NodePoolStatus{}}},
	}
	settle(t, aggregate, versions{})
	return aggregate
}

func settle(t *testing.T, aggregate *fleet.ClusterAggregate, renderer fleet.Renderer) {
	t.Helper()
	must.Do(t, region.Settle(start, aggregate, renderer))
}

// observe reports what the agent observes of a work. Maestro acknowledged its desired content before.
func observe(w *fleet.Work, o feedback.Observed) { w.Published, w.Observed = w.Desired, o }

func applied(digest string) feedback.Observed {
	return feedback.Observed{Applied: feedback.Condition{Status: "True"}, Digest: digest}
}

func hosted(digest, available, state string) feedback.Observed {
	o := applied(digest)
	o.Conditions = map[string]feedback.Condition{feedback.Available: {Status: available, Reason: "R", Message: "m"}}
	o.EndpointHost, o.EndpointPort = "127.0.0.1", 6443
	o.ControlPlaneVersions = []feedback.Release{{Version: "4.21.4", Image: "image-4.21.4", State: state}}
	return o
}

// acted sets the generation of the HostedCluster and the generation that HyperShift acted on.
func acted(o feedback.Observed, generation, on int64) feedback.Observed {
	o.Generation, o.ActedOn = generation, on
	return o
}

// with adds a condition.
func with(o feedback.Observed, kind, status string) feedback.Observed {
	if o.Conditions == nil {
		o.Conditions = map[string]feedback.Condition{}
	}
	o.Conditions[kind] = feedback.Condition{Status: status, Reason: "Because", Message: "So it is"}
	return o
}

// TestApplied checks that a status is about the desired content. The digest of content that returns to an earlier one does not tell it.
func TestApplied(t *testing.T) {
	tests := map[string]struct {
		reason string
		work   fleet.Work
		want   bool
	}{
		"Applied":       {"the status is about the version that Maestro acknowledged", fleet.Work{Desired: 3, Published: 3, Version: 3, Sequence: "3 17 agent"}, true},
		"Newer":         {"another replica published it again", fleet.Work{Desired: 3, Published: 3, Version: 3, Sequence: "10 17 agent"}, true},
		"Old server":    {"Maestro did not tell its version", fleet.Work{Desired: 3, Published: 3, Sequence: "3 17 agent"}, true},
		"Older":         {"the agent has not seen what was desired in between", fleet.Work{Desired: 3, Published: 3, Version: 3, Sequence: "1 9 agent"}, false},
		"Not published": {"Maestro has not acknowledged it", fleet.Work{Desired: 3, Published: 2, Version: 2, Sequence: "2 9 agent"}, false},
		"Answer lost":   {"the agent has a version that Maestro could not acknowledge", fleet.Work{Desired: 3, Published: 2, Version: 2, Sequence: "3 17 agent"}, true},
		"First lost":    {"there was no other content", fleet.Work{Desired: 1, Sequence: "1 17 agent"}, true},
		"All lost":      {"the version may be that of the first content", fleet.Work{Desired: 3, Sequence: "1 17 agent"}, false},
		"Restarted":     {"Maestro lost the resource, and no agent has reported the new one", fleet.Work{Desired: 3, Published: 3, Version: 1}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.work.Kind, tc.work.Digest, tc.work.Observed = fleet.NodePoolWork, "same", applied("same")
			if got := tc.work.Applied(); got != tc.want {
				t.Errorf("applied: %v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestClusterPhases(t *testing.T) {
	ready := func(t *fleet.ClusterAggregate) {
		observe(t.Work(fleet.HostedCluster, ""), hosted("cluster-1", "True", "Completed"))
	}
	update := func(t *fleet.ClusterAggregate) { t.Cluster.Generation = 2 }
	rotate := func(t *fleet.ClusterAggregate) {
		update(t)
		t.Cluster.Spec.Etcd = &csv1.Etcd{KmsKey: &csv1.KmsKey{VaultName: "v", KeyName: "k", KeyVersion: "v2"}}
	}
	tests := map[string]struct {
		reason   string
		steps    []func(*fleet.ClusterAggregate)
		phase    csv1.ClusterPhase
		observed int64
	}{
		"Nothing reported": {"the agent has not reported", nil, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"No place": {"the cluster is not placed", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Cluster.Shard = ""; t.Works = nil }},
			csv1.ClusterPhase_CLUSTER_PHASE_PENDING, 0},
		"Applied": {"the control plane is not available", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), hosted("cluster-1", "False", "Partial"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Available but partial": {"the release is not completely rolled out", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), hosted("cluster-1", "True", "Partial"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Available without an endpoint": {"clients cannot connect", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			o := hosted("cluster-1", "True", "Completed")
			o.EndpointPort = 0
			observe(t.Work(fleet.HostedCluster, ""), o)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Available at another digest": {"the report is for another desired state", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), hosted("cluster-0", "True", "Completed"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Ready": {"the control plane is available and its release complete", []func(*fleet.ClusterAggregate){ready}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 1},
		"Release without controlPlaneVersion": {"an old release reports Available only", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			t.Cluster.Release = fleet.Release{Version: "4.20.8", Image: "image-4.20.8"}
			o := hosted("cluster-1", "True", "")
			o.ControlPlaneVersions, o.Image = nil, "image-4.20.8"
			observe(t.Work(fleet.HostedCluster, ""), o)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 1},
		"Updating": {"a newer generation is not applied", []func(*fleet.ClusterAggregate){ready, update}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Updated": {"the newer generation was reported", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), hosted("cluster-2", "True", "Completed"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Update during an outage": {"an update is complete when it is reported; availability is a condition", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), hosted("cluster-2", "False", "Completed"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Not acted upon": {"the API server has the update, HyperShift has not acted on it", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), acted(hosted("cluster-2", "True", "Completed"), 4, 3))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Acted upon": {"HyperShift acted on it", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), acted(hosted("cluster-2", "True", "Completed"), 4, 4))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Paused": {"HyperShift reports the generation of a paused cluster and does not apply it", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), with(acted(hosted("cluster-2", "True", "Completed"), 4, 4), feedback.ReconciliationActive, "False"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Cannot be reconciled": {"HyperShift acted on it and failed", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), with(hosted("cluster-2", "True", "Completed"), feedback.ReconciliationSucceeded, "False"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Key not in use": {"etcd's data is still encrypted with the version before", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			o := with(hosted("cluster-2", "True", "Completed"), feedback.DataEncrypted, "True")
			o.EncryptionKey = "v1"
			observe(t.Work(fleet.HostedCluster, ""), o)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Key being rotated": {"some of the data is not re-encrypted", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			o := with(hosted("cluster-2", "True", "Completed"), feedback.DataEncrypted, "False")
			o.EncryptionKey = "v1"
			observe(t.Work(fleet.HostedCluster, ""), o)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Key rotated": {"all of the data is encrypted with the new version", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			o := with(with(hosted("cluster-2", "True", "Completed"), feedback.DataEncrypted, "True"), feedback.ValidKMS, "True")
			o.EncryptionKey = "v2"
			observe(t.Work(fleet.HostedCluster, ""), o)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Key rotated, not reported by release": {"the release reports only that the key is valid", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), with(hosted("cluster-2", "True", "Completed"), feedback.ValidKMS, "True"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Key refused": {"the key vault denies the control plane access", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), with(hosted("cluster-2", "True", "Completed"), feedback.ValidKMS, "False"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Key in a private vault not validated": {"HyperShift does not reach the vault; the control plane does", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			t.Cluster.Spec.Etcd.KmsKey.VaultVisibility = csv1.Visibility_VISIBILITY_PRIVATE
			o := hosted("cluster-2", "True", "Completed")
			o.Conditions[feedback.ValidKMS] = feedback.Condition{Status: "False", Reason: feedback.KeyVaultError}
			observe(t.Work(fleet.HostedCluster, ""), o)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Key in a private vault refused": {"HyperShift has no credentials", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			t.Cluster.Spec.Etcd.KmsKey.VaultVisibility = csv1.Visibility_VISIBILITY_PRIVATE
			o := hosted("cluster-2", "True", "Completed")
			o.Conditions[feedback.ValidKMS] = feedback.Condition{Status: "False", Reason: "InvalidAzureCredentials"}
			observe(t.Work(fleet.HostedCluster, ""), o)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Rendered again": {"another rendering of the same generation changes nothing for the customer", []func(*fleet.ClusterAggregate){ready, func(t *fleet.ClusterAggregate) {
			observe(t.Work(fleet.HostedCluster, ""), hosted("cluster-0", "True", "Completed"))
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 1},
		"Refused": {"Maestro permanently rejects it", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Work(fleet.HostedCluster, "").Refused = true }},
			csv1.ClusterPhase_CLUSTER_PHASE_FAILED, 0},
		"Refused, then changed": {"a new generation is published", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Work(fleet.HostedCluster, "").Refused = true }, update},
			csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			for _, step := range tc.steps {
				step(aggregate)
				settle(t, aggregate, versions{})
			}
			s := aggregate.Cluster.Status
			if s.GetPhase() != tc.phase || s.GetObservedGeneration() != tc.observed {
				t.Errorf("%s, observed generation %d; want %s, %d: %s", s.GetPhase(), s.GetObservedGeneration(), tc.phase, tc.observed, tc.reason)
			}
			again := aggregate.Clone()
			settle(t, again, versions{})
			if !proto.Equal(again.Cluster.Status, s) {
				t.Errorf("settling twice changed %v to %v", s, again.Cluster.Status)
			}
		})
	}
}

func TestNodePoolPhases(t *testing.T) {
	pool := func(digest string, replicas int64, version, machines string) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) {
			o := applied(digest)
			o.Replicas, o.Version = replicas, version
			o.Conditions = map[string]feedback.Condition{feedback.AllMachines: {Status: machines}}
			observe(t.Work(fleet.NodePoolWork, poolUID), o)
		}
	}
	size := func(generation int64, change func(*csv1.NodePoolSpec)) func(*fleet.ClusterAggregate) {
		return func(t *fleet.ClusterAggregate) { t.Pools[0].Generation = generation; change(t.Pools[0].Spec) }
	}
	autoscale := size(1, func(s *csv1.NodePoolSpec) {
		s.Size = &csv1.NodePoolSpec_Autoscaling{Autoscaling: &csv1.NodePoolAutoscaling{Min: 1, Max: 3}}
	})
	tests := map[string]struct {
		reason   string
		steps    []func(*fleet.ClusterAggregate)
		phase    csv1.NodePoolPhase
		observed int64
	}{
		"Cluster without a place": {"its cluster is not placed", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Cluster.Shard = ""; t.Works = nil }},
			csv1.NodePoolPhase_NODE_POOL_PHASE_PENDING, 0},
		"Nothing reported":   {"the agent has not reported", nil, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Too few":            {"one of two nodes is ready", []func(*fleet.ClusterAggregate){pool("pool-1", 1, "4.21.4", "False")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Machines not ready": {"AllMachinesReady is required", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "False")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Another version":    {"the rollout is not complete", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Ready":              {"all nodes are ready", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Scaled to zero": {"without replicas no machine is ready, as expected", []func(*fleet.ClusterAggregate){
			size(1, func(s *csv1.NodePoolSpec) { s.Size = &csv1.NodePoolSpec_Replicas{} }), pool("pool-1", 0, "", "False")}, csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Autoscaled within": {"anything from min to max", []func(*fleet.ClusterAggregate){autoscale, pool("pool-1", 3, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Autoscaled below":  {"less than min", []func(*fleet.ClusterAggregate){autoscale, pool("pool-1", 0, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Lost a node": {"a lost node is not an update", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"), pool("pool-1", 1, "4.21.4", "False")},
			csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Scaling": {"the new size is not reached", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"),
			size(2, func(s *csv1.NodePoolSpec) { s.Size = &csv1.NodePoolSpec_Replicas{Replicas: 4} }), pool("pool-2", 3, "4.21.4", "True")},
			csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING, 1},
		"Scaled": {"the new size is reached", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"),
			size(2, func(s *csv1.NodePoolSpec) { s.Size = &csv1.NodePoolSpec_Replicas{Replicas: 4} }), pool("pool-2", 4, "4.21.4", "True")},
			csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 2},
		"Repair of an empty pool": {"HyperShift does not report that the repair is on before a node has started", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"),
			size(2, func(s *csv1.NodePoolSpec) { s.Size, s.AutoRepair = &csv1.NodePoolSpec_Replicas{}, true }), pool("pool-2", 0, "4.21.4", "False"), func(t *fleet.ClusterAggregate) {
				observe(t.Work(fleet.NodePoolWork, poolUID), with(t.Work(fleet.NodePoolWork, poolUID).Observed, feedback.AutorepairEnabled, "False"))
			}}, csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 2},
		"Scaled at the old digest": {"the report is for the previous desired state", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"),
			size(2, func(s *csv1.NodePoolSpec) {}), pool("pool-1", 2, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING, 1},
	}
	more := map[string]func(*feedback.Observed){
		"Not acted upon":          func(o *feedback.Observed) { o.Generation, o.ActedOn = 3, 2 },
		"Skew":                    func(o *feedback.Observed) { *o = with(*o, feedback.VersionSkew, "False") },
		"Release unknown":         func(o *feedback.Observed) { *o = with(*o, feedback.ValidReleaseImage, "False") },
		"Still autoscaled":        func(o *feedback.Observed) { *o = with(*o, feedback.AutoscalingEnabled, "True") },
		"Repair not switched off": func(o *feedback.Observed) { *o = with(*o, feedback.AutorepairEnabled, "True") },
		"Version updating":        func(o *feedback.Observed) { *o = with(*o, feedback.UpdatingVersion, "True") },
		"Template updating":       func(o *feedback.Observed) { *o = with(*o, feedback.UpdatingTemplate, "True") },
	}
	for name, change := range more {
		test := tests["Ready"]
		test.reason, test.phase, test.observed = "all nodes are ready, and a condition is not met", csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0
		test.steps = append(slices.Clone(test.steps), func(t *fleet.ClusterAggregate) {
			t.Pools[0].Status = &csv1.NodePoolStatus{}
			change(&t.Work(fleet.NodePoolWork, poolUID).Observed)
		})
		tests[name] = test
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			aggregate := placed(t)
			for _, step := range tc.steps {
				step(aggregate)
				settle(t, aggregate, versions{})
			}
			s := aggregate.Pools[0].Status
			if s.GetPhase() != tc.phase || s.GetObservedGeneration() != tc.observed {
				t.Errorf("%s, observed generation %d; want %s, %d: %s", s.GetPhase(), s.GetObservedGeneration(), tc.phase, tc.observed, tc.reason)
			}
		})
	}
}

// TestNamespacesAreDeletedAfterNodePoolsAndHostedCluster deletes a cluster work by work. While the work of a node pool exists,
// the agent would create a NodePool again that HyperShift deleted.
func TestNamespacesAreDeletedAfterNodePoolsAndHostedCluster(t *testing.T) {
	aggregate := placed(t)
	namespaces, cluster, pool := aggregate.Work(fleet.Namespaces, ""), aggregate.Work(fleet.HostedCluster, ""), aggregate.Work(fleet.NodePoolWork, poolUID)
	aggregate.Cluster.DeleteTime = start
	state := func() string {
		if len(aggregate.Cluster.Status.GetProgress()) != 1 {
			t.Fatalf("progress %v", aggregate.Cluster.Status.GetProgress())
		}
		return aggregate.Cluster.Status.GetProgress()[0].GetState()
	}

	settle(t, aggregate, nil)
	if !pool.Deleting() || !cluster.Deleting() || namespaces.Deleting() || state() != "DeletingNodePools" {
		t.Errorf("want the works of the node pool and the HostedCluster deleting, and the namespaces not; state %s", state())
	}
	if !aggregate.Pools[0].Deleting() {
		t.Error("the node pool of a deleted cluster is not being deleted")
	}
	cluster.Observed.Deleted = true
	settle(t, aggregate, nil)
	if namespaces.Deleting() || state() != "DeletingNodePools" {
		t.Errorf("want the namespaces to wait for the node pools; state %s", state())
	}
	pool.Observed.Deleted = true
	settle(t, aggregate, nil)
	if !namespaces.Deleting() || state() != "DeletingNamespaces" || !aggregate.Pools[0].Gone() || aggregate.Cluster.Gone() {
		t.Errorf("want the namespaces deleting; state %s", state())
	}
	namespaces.Observed.Deleted = true
	settle(t, aggregate, nil)
	if !aggregate.Cluster.Gone() || aggregate.Cluster.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_DELETED || len(aggregate.Works) != 0 || aggregate.Cluster.SigningKey != nil {
		t.Errorf("want only the tombstone, without the signing key: %v", aggregate.Cluster.Status)
	}
}

// TestNodePoolDeletionKeepsCluster checks that the deletion of a node pool deletes only the works of the node pool.
func TestNodePoolDeletionKeepsCluster(t *testing.T) {
	aggregate := placed(t)
	aggregate.Pools[0].DeleteTime = start
	settle(t, aggregate, nil)
	work := aggregate.Work(fleet.NodePoolWork, poolUID)
	if !work.Deleting() || aggregate.Work(fleet.HostedCluster, "").Deleting() {
		t.Error("want only the node pool's work deleting")
	}
	work.Observed.Deleted = true
	settle(t, aggregate, versions{})
	if !aggregate.Pools[0].Gone() || len(aggregate.Works) != 2 {
		t.Errorf("node pool %v, %d works", aggregate.Pools[0].Status, len(aggregate.Works))
	}
}

// TestUnchangedStateKeepsItsTime checks that the time of a state is the time of its last change.
func TestUnchangedStateKeepsItsTime(t *testing.T) {
	aggregate := placed(t)
	before := proto.CloneOf(aggregate.Cluster.Status)
	must.Do(t, region.Settle(start.Add(time.Hour), aggregate, nil))
	if !proto.Equal(before, aggregate.Cluster.Status) {
		t.Errorf("after an hour, the status changed from %v to %v", before, aggregate.Cluster.Status)
	}
}

func TestNames(t *testing.T) {
	id := fleet.ClusterID(clusterUID)
	if len(id) != 32 || id != fleet.ClusterID("0B5E7AD4-6D0C-4B0C-9F8F-3C1F6A2D7E10") {
		t.Errorf("cluster id %q", id)
	}
	if a, b := fleet.WorkID("mgmt-1", id+"-np", "one"), fleet.WorkID("mgmt-1", id+"-np", "two"); a == b {
		t.Error("two incarnations of a node pool share a work")
	}
	if p := fleet.Prefix(clusterUID, 0); len(p) != 15 || p[0] < 'a' || p[0] > 'z' || p == fleet.Prefix(clusterUID, 1) {
		t.Errorf("prefix %q", p)
	}
}

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

// TestConditionsOfParts checks that a cluster has the conditions of the parts of its HostedCluster, since the time of the last
// change, and none while the HostedCluster does not exist.
func TestConditionsOfParts(t *testing.T) {
	aggregate := placed(t)
	work := aggregate.Work(fleet.HostedCluster, "")
	at := start
	report := func(observed feedback.Observed) {
		t.Helper()
		work.Observed, at = observed, at.Add(time.Hour)
		must.Do(t, region.Settle(at, aggregate, versions{}))
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
		must.Do(t, region.Settle(start.Add(time.Hour), aggregate, versions{}))
		if got := aggregate.Cluster.Status.GetInsideObservation(); !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
