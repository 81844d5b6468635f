package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

const (
	clusterUID = "0b5e7ad4-6d0c-4b0c-9f8f-3c1f6a2d7e10"
	poolUID    = "7d8f8c57-9b7e-4b57-8f3e-1f0f3b0f7a11"
)

var (
	start  = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	region = fleet.Region{BaseDomain: "example.test", IssuerBase: "https://oidc.example.test", EndpointURLs: true}
)

// versions renders to what decides the content in these tests: generation and size.
type versions struct{}

func (versions) Digest(t *fleet.ClusterAggregate, w *fleet.Work) (string, error) {
	if p := t.Pool(w.OwnerUID); p != nil {
		return fmt.Sprintf("pool-%d", p.Generation), nil
	}
	if w.Kind == fleet.Namespaces {
		return "namespaces", nil
	}
	return fmt.Sprintf("cluster-%d", t.Cluster.Generation), nil
}

// placed is a cluster with one node pool of 2, just settled for the first time.
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
	if err := region.Settle(start, aggregate, renderer); err != nil {
		t.Fatal(err)
	}
}

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

// acted has the operator say which generation it acted on.
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

func TestClusterPhases(t *testing.T) {
	ready := func(t *fleet.ClusterAggregate) {
		t.Work(fleet.HostedCluster, "").Observed = hosted("cluster-1", "True", "Completed")
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
		"Nothing reported": {"it was placed a moment ago", nil, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"No place": {"without a shard nothing can begin", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Cluster.Shard = ""; t.Works = nil }},
			csv1.ClusterPhase_CLUSTER_PHASE_PENDING, 0},
		"Applied": {"the control plane is not available", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = hosted("cluster-1", "False", "Partial")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Available but partial": {"the release is not completely rolled out", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = hosted("cluster-1", "True", "Partial")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Available without an endpoint": {"nobody could reach it", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			o := hosted("cluster-1", "True", "Completed")
			o.EndpointPort = 0
			t.Work(fleet.HostedCluster, "").Observed = o
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Available at another digest": {"what is reported is not what was asked for", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = hosted("cluster-0", "True", "Completed")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0},
		"Ready": {"all of it is there", []func(*fleet.ClusterAggregate){ready}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 1},
		"Release without controlPlaneVersion": {"an old release is taken at Available's word", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) {
			t.Cluster.Release = fleet.Release{Version: "4.20.8", Image: "image-4.20.8"}
			o := hosted("cluster-1", "True", "")
			o.ControlPlaneVersions, o.Image = nil, "image-4.20.8"
			t.Work(fleet.HostedCluster, "").Observed = o
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 1},
		"Updating": {"a newer generation is on its way", []func(*fleet.ClusterAggregate){ready, update}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Updated": {"the newer generation was read back", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = hosted("cluster-2", "True", "Completed")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Update during an outage": {"an update is done when it is read back; availability is a condition", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = hosted("cluster-2", "False", "Completed")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Not acted upon": {"the API server took the update, the operator has not looked at it", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = acted(hosted("cluster-2", "True", "Completed"), 4, 3)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Acted upon": {"the operator has looked at it", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = acted(hosted("cluster-2", "True", "Completed"), 4, 4)
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Cannot be reconciled": {"the operator has looked at it and failed", []func(*fleet.ClusterAggregate){ready, update, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = with(hosted("cluster-2", "True", "Completed"), feedback.ReconciliationSucceeded, "False")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Key not in use": {"etcd's data is still encrypted with the version before", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			o := with(hosted("cluster-2", "True", "Completed"), feedback.DataEncrypted, "True")
			o.EncryptionKey = "v1"
			t.Work(fleet.HostedCluster, "").Observed = o
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Key being rotated": {"some of the data is encrypted anew", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			o := with(hosted("cluster-2", "True", "Completed"), feedback.DataEncrypted, "False")
			o.EncryptionKey = "v1"
			t.Work(fleet.HostedCluster, "").Observed = o
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Key rotated": {"all of the data is encrypted with the new version", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			o := with(with(hosted("cluster-2", "True", "Completed"), feedback.DataEncrypted, "True"), feedback.ValidKMS, "True")
			o.EncryptionKey = "v2"
			t.Work(fleet.HostedCluster, "").Observed = o
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Key rotated, release without a word on it": {"the key is valid, which is all that it says", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = with(hosted("cluster-2", "True", "Completed"), feedback.ValidKMS, "True")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 2},
		"Key refused": {"the key vault does not let the control plane use it", []func(*fleet.ClusterAggregate){ready, rotate, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = with(hosted("cluster-2", "True", "Completed"), feedback.ValidKMS, "False")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, 1},
		"Rendered anew": {"another rendering of the same generation changes nothing for the customer", []func(*fleet.ClusterAggregate){ready, func(t *fleet.ClusterAggregate) {
			t.Work(fleet.HostedCluster, "").Observed = hosted("cluster-0", "True", "Completed")
		}}, csv1.ClusterPhase_CLUSTER_PHASE_READY, 1},
		"Refused": {"Maestro will never take it", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Work(fleet.HostedCluster, "").Refused = true }},
			csv1.ClusterPhase_CLUSTER_PHASE_FAILED, 0},
		"Refused, then changed": {"a new generation is tried", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Work(fleet.HostedCluster, "").Refused = true }, update},
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
			t.Work(fleet.NodePoolWork, poolUID).Observed = o
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
		"Cluster without a place": {"it waits for its cluster", []func(*fleet.ClusterAggregate){func(t *fleet.ClusterAggregate) { t.Cluster.Shard = ""; t.Works = nil }},
			csv1.NodePoolPhase_NODE_POOL_PHASE_PENDING, 0},
		"Nothing reported":   {"it was placed a moment ago", nil, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Too few":            {"one of two", []func(*fleet.ClusterAggregate){pool("pool-1", 1, "4.21.4", "False")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Machines not ready": {"AllMachinesReady is required", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "False")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Another version":    {"the rollout is not complete", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Ready":              {"all there", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Scaled to zero": {"without replicas no machine is ready, as expected", []func(*fleet.ClusterAggregate){
			size(1, func(s *csv1.NodePoolSpec) { s.Size = &csv1.NodePoolSpec_Replicas{} }), pool("pool-1", 0, "", "False")}, csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Autoscaled within": {"anything from min to max", []func(*fleet.ClusterAggregate){autoscale, pool("pool-1", 3, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Autoscaled below":  {"less than min", []func(*fleet.ClusterAggregate){autoscale, pool("pool-1", 0, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0},
		"Lost a node": {"nodes come and go without an update", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"), pool("pool-1", 1, "4.21.4", "False")},
			csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 1},
		"Scaling": {"the new size is not reached", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"),
			size(2, func(s *csv1.NodePoolSpec) { s.Size = &csv1.NodePoolSpec_Replicas{Replicas: 4} }), pool("pool-2", 3, "4.21.4", "True")},
			csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING, 1},
		"Scaled": {"the new size is reached", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"),
			size(2, func(s *csv1.NodePoolSpec) { s.Size = &csv1.NodePoolSpec_Replicas{Replicas: 4} }), pool("pool-2", 4, "4.21.4", "True")},
			csv1.NodePoolPhase_NODE_POOL_PHASE_READY, 2},
		"Scaled by name only": {"the right number at the old digest is not the update's", []func(*fleet.ClusterAggregate){pool("pool-1", 2, "4.21.4", "True"),
			size(2, func(s *csv1.NodePoolSpec) {}), pool("pool-1", 2, "4.21.4", "True")}, csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING, 1},
	}
	more := map[string]func(*feedback.Observed){
		"Not acted upon":          func(o *feedback.Observed) { o.Generation, o.ActedOn = 3, 2 },
		"Skew":                    func(o *feedback.Observed) { *o = with(*o, feedback.VersionSkew, "False") },
		"Release unknown":         func(o *feedback.Observed) { *o = with(*o, feedback.ValidReleaseImage, "False") },
		"Still autoscaled":        func(o *feedback.Observed) { *o = with(*o, feedback.AutoscalingEnabled, "True") },
		"Repair not switched off": func(o *feedback.Observed) { *o = with(*o, feedback.AutorepairEnabled, "True") },
		"Version on its way":      func(o *feedback.Observed) { *o = with(*o, feedback.UpdatingVersion, "True") },
		"Template on its way":     func(o *feedback.Observed) { *o = with(*o, feedback.UpdatingTemplate, "True") },
	}
	for name, change := range more {
		test := tests["Ready"]
		test.reason, test.phase, test.observed = "all nodes are there, and something is still awaited", csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, 0
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

// TestDeletionOrder goes through a deletion work by work: hazard (a) of the deletion is that the agent creates a NodePool
// again which HyperShift deleted, because its work is still there.
func TestDeletionOrder(t *testing.T) {
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
		t.Errorf("first the node pools and the HostedCluster go, then the namespaces; state %s", state())
	}
	if !aggregate.Pools[0].Deleting() {
		t.Error("the node pool goes with its cluster")
	}
	cluster.Observed.Deleted = true
	settle(t, aggregate, nil)
	if namespaces.Deleting() || state() != "DeletingNodePools" {
		t.Errorf("the namespaces wait for the node pools; state %s", state())
	}
	pool.Observed.Deleted = true
	settle(t, aggregate, nil)
	if !namespaces.Deleting() || state() != "DeletingNamespaces" || !aggregate.Pools[0].Gone() || aggregate.Cluster.Gone() {
		t.Errorf("now the namespaces go; state %s", state())
	}
	namespaces.Observed.Deleted = true
	settle(t, aggregate, nil)
	if !aggregate.Cluster.Gone() || aggregate.Cluster.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_DELETED || len(aggregate.Works) != 0 || aggregate.Cluster.SigningKey != nil {
		t.Errorf("now only the tombstone is left, without the signing key: %v", aggregate.Cluster.Status)
	}
}

// TestDeletionOfANodePoolAlone leaves the cluster as it is.
func TestDeletionOfANodePoolAlone(t *testing.T) {
	aggregate := placed(t)
	aggregate.Pools[0].DeleteTime = start
	settle(t, aggregate, nil)
	work := aggregate.Work(fleet.NodePoolWork, poolUID)
	if !work.Deleting() || aggregate.Work(fleet.HostedCluster, "").Deleting() {
		t.Error("only the node pool's work goes")
	}
	work.Observed.Deleted = true
	settle(t, aggregate, versions{})
	if !aggregate.Pools[0].Gone() || len(aggregate.Works) != 2 {
		t.Errorf("node pool %v, %d works", aggregate.Pools[0].Status, len(aggregate.Works))
	}
}

// TestSinceStays keeps the age of a state while it lasts.
func TestSinceStays(t *testing.T) {
	aggregate := placed(t)
	before := proto.CloneOf(aggregate.Cluster.Status)
	if err := region.Settle(start.Add(time.Hour), aggregate, nil); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(before, aggregate.Cluster.Status) {
		t.Errorf("an hour later %v has become %v", before, aggregate.Cluster.Status)
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
