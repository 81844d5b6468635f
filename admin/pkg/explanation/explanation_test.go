package explanation

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/testing/recordeddump"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden is the folder of the expected texts. They are documentation as well.
const golden = "../../../docs/operators/explain"

const (
	clusterID     = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"
	createID      = "3e1c2f70-9d3c-4d4f-9a53-0c1f8f6b8f11"
	updateID      = "8b0f3e52-5f64-4f2e-8a7b-6d2f0d4f1c22"
	deleteID      = "c7d9a1b4-2e0d-4a3f-b1c6-93f1b0a7dd33"
	placedMessage = "Placed on provision shard mgmt-1."
)

// now is when all facts were read.
var now = time.Date(2026, 11, 21, 3, 16, 7, 0, time.UTC)

func ago(d time.Duration) time.Time                { return now.Add(-d) }
func stamp(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(ago(d)) }

func layer(name, state, message string, since time.Duration) *csv1.LayerProgress {
	return &csv1.LayerProgress{Layer: name, State: state, Message: message, Since: stamp(since)}
}

func condition(kind, status, reason, message string, since time.Duration) *csv1.Condition {
	return &csv1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: stamp(since)}
}

func newRecord(id string, generation int64, state string) record {
	return record{resourceID: id, uid: "5d0e8f0c-0c3a-4f4a-8f62-5b8c1f1f9a10", generation: generation, provisioningState: state}
}

func inProgress(id, request, resourceID string, began, limit time.Duration) operation {
	return operation{id: id, request: request, resourceID: resourceID, status: "Provisioning", started: ago(began), deadline: ago(began - limit)}
}

func terminal(id, request, resourceID, status string, began, end time.Duration) operation {
	return operation{id: id, request: request, resourceID: resourceID, status: status, started: ago(began), ended: ago(end)}
}

// cluster returns a cluster that has been ready for a day, with a change.
func cluster(change func(*csv1.Cluster)) *csv1.Cluster {
	const day = 24 * time.Hour
	c := &csv1.Cluster{Uid: "5d0e8f0c-0c3a-4f4a-8f62-5b8c1f1f9a10", ResourceId: clusterID, Generation: 1, CreateTime: stamp(day), Status: &csv1.ClusterStatus{
		Phase: csv1.ClusterPhase_CLUSTER_PHASE_READY, ObservedGeneration: 1, ClusterId: "1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae", ProvisionShard: "mgmt-1",
		ActiveVersions: []string{"4.20.16"}, ApiUrl: "https://api.demo.0ulz.westus3.aroapp-hcp.io:443",
		Progress: entries(
			layer("placement", "Placed", placedMessage, day),
			layer("maestro", "Published", "Maestro accepted the desired state.", day),
			layer("management-cluster", "Applied", "The desired state is applied on the management cluster.", day),
			layer("control-plane", "Available", "The hosted control plane is available", day)),
	}}
	change(c)
	return c
}

func installing(began time.Duration, progress ...*csv1.LayerProgress) *csv1.Cluster {
	return cluster(func(c *csv1.Cluster) {
		c.CreateTime = stamp(began)
		c.Status.Phase, c.Status.ObservedGeneration, c.Status.ActiveVersions, c.Status.ApiUrl = csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0, nil, ""
		c.Status.Progress = append(entries(layer("placement", "Placed", placedMessage, began)), progress...)
	})
}

func pool(name string, change func(*csv1.NodePool)) *csv1.NodePool {
	const day = 23 * time.Hour
	p := &csv1.NodePool{Uid: "7a1f0c55-4d1e-4a51-9a0d-1b7be7f0c9" + map[string]string{"workers": "21", "infra": "22"}[name], ResourceId: clusterID + "/nodePools/" + name, Generation: 1,
		Status: &csv1.NodePoolStatus{Phase: csv1.NodePoolPhase_NODE_POOL_PHASE_READY, ObservedGeneration: 1, Replicas: 2, Version: "4.20.16", Progress: entries(
			layer("placement", "Placed", "Placed with its cluster on provision shard mgmt-1.", day),
			layer("maestro", "Published", "Maestro accepted the desired state.", day),
			layer("management-cluster", "Applied", "The desired state is applied on the management cluster.", day),
			layer("node-pool", "Ready", "2 nodes are ready.", day))}}
	change(p)
	return p
}

// components returns the components of a control plane in an upgrade, of which two are rolling out.
func components(rolling time.Duration) []*csv1.ComponentProgress {
	const begun = csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT
	list := []*csv1.ComponentProgress{
		{Name: "kube-controller-manager", State: begun, Version: "4.20.16", Since: stamp(rolling),
			Message: "Waiting for deployment kube-controller-manager rollout to finish: 1 out of 3 new replicas have been updated"},
		{Name: "kube-scheduler", State: begun, Version: "4.20.16", Since: stamp(rolling - time.Minute), Message: "Waiting for deployment kube-scheduler rollout to finish"},
		{Name: "dns-operator", State: csv1.ComponentState_COMPONENT_STATE_WAITING, Version: "4.20.16", Since: stamp(rolling + time.Minute), Message: "Waiting for Dependencies: openshift-apiserver"},
	}
	for _, name := range []string{"etcd", "kube-apiserver", "router"} {
		list = append(list, &csv1.ComponentProgress{Name: name, State: csv1.ComponentState_COMPONENT_STATE_UPDATED, Version: "4.21.4", Since: stamp(rolling)})
	}
	return list
}

func unchanged[T any](T) {}

// beingCreated returns the facts of a cluster whose creation began some time ago.
func beingCreated(began time.Duration, c *csv1.Cluster, more ...func(*facts)) facts {
	f := facts{now: now, name: "demo", target: adminv1.Cluster{ResourceID: clusterID}, records: []record{newRecord(clusterID, 1, "Provisioning")},
		operations: []operation{inProgress(createID, "Create", clusterID, began, time.Hour)}, cluster: c}
	for _, change := range more {
		change(&f)
	}
	return f
}

// createdYesterday returns the facts of a cluster that was created a day ago.
func createdYesterday(c *csv1.Cluster, more ...func(*facts)) facts {
	f := facts{now: now, name: "demo", target: adminv1.Cluster{ResourceID: clusterID}, records: []record{newRecord(clusterID, 1, "Succeeded")},
		operations: []operation{terminal(createID, "Create", clusterID, "Succeeded", 24*time.Hour, 24*time.Hour-9*time.Minute)}, cluster: c}
	for _, change := range more {
		change(&f)
	}
	return f
}

// beingDeleted returns the facts of a cluster whose deletion has reached the step of its HostedCluster, which started some
// time ago, with a change of that step.
func beingDeleted(began, since time.Duration, change func(*csv1.DeletionStep)) facts {
	const work = "1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae"
	running := &csv1.DeletionStep{Name: "hosted-cluster", Kind: "hosted-cluster", Layer: "management-cluster", State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING,
		Since: stamp(since), After: []string{"hosted-cluster/publish"}, StuckTime: stamp(since - 25*time.Minute), Stuck: since > 25*time.Minute, Attempts: 1,
		WaitsFor:   "Waiting for the agent of mgmt-1 to confirm the deletion of all objects of work " + work + ". It reports: Finalizers hypershift.openshift.io/finalizer.",
		Finalizers: []string{"hypershift.openshift.io/finalizer"}}
	change(running)
	finished := func(name, kind string) *csv1.DeletionStep {
		return &csv1.DeletionStep{Name: name, Kind: kind, Layer: "maestro", State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: stamp(since)}
	}
	waiting := func(name, kind string) *csv1.DeletionStep {
		return &csv1.DeletionStep{Name: name, Kind: kind, Layer: "maestro", State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, Since: stamp(began)}
	}
	c := cluster(func(c *csv1.Cluster) {
		c.DeleteTime, c.Status.Phase = stamp(began), csv1.ClusterPhase_CLUSTER_PHASE_DELETING
		c.Status.Progress = entries(layer("management-cluster", "DeletingHostedCluster", "Waiting for the deletion of work "+work+".", since))
		c.Status.Deletion = &csv1.Deletion{Steps: []*csv1.DeletionStep{finished("node-pool/workers/publish", "node-pool-publish"), finished("node-pool/workers", "node-pool"),
			finished("hosted-cluster/publish", "hosted-cluster-publish"), running, waiting("namespaces/publish", "namespaces-publish"), waiting("namespaces", "namespaces")}}
	})
	return createdYesterday(c, func(f *facts) {
		f.records[0].provisioningState = "Deleting"
		f.operations = append(f.operations, inProgress(deleteID, "Delete", clusterID, began, 12*time.Hour))
		f.deletions = clusterDeletion(deletion.Facts{ChildrenMarked: true, FleetAccepted: true, Fleet: c.GetStatus().GetDeletion()}, began)
	})
}

// clusterDeletion returns the graph of the cluster's deletion, which began some time ago.
func clusterDeletion(facts deletion.Facts, began time.Duration) []deletion.Graph {
	facts.StartTime = now.Add(-began)
	return []deletion.Graph{{Kind: deletion.KindCluster, ResourceID: clusterID, StartTime: facts.StartTime, OperationID: deleteID, Steps: facts.Steps(now)}}
}

// refusePool adds a node pool whose last change the management cluster permanently refuses.
func (f *facts) refusePool(properties string) {
	const refused = "NodePool demo-workers: NodePool.hypershift.openshift.io \"demo-workers\" is invalid: spec.nodeLabels: Invalid value"
	p := pool("workers", func(p *csv1.NodePool) {
		p.Generation, p.Status.Phase = 2, csv1.NodePoolPhase_NODE_POOL_PHASE_FAILED
		p.Status.Progress[2] = layer("management-cluster", "Refused", refused, 3*time.Minute)
		p.Status.Conditions = []*csv1.Condition{condition("Applied", "False", "ApplyRefused", properties+refused, 3*time.Minute)}
	})
	failed := terminal(updateID, "Update", p.ResourceId, "Failed", 3*time.Minute, 3*time.Minute-2*time.Second)
	failed.code, failed.message = "DesiredStateRefused", "The service cannot apply this value"
	f.nodePools, f.operations = []*csv1.NodePool{p}, append(f.operations, failed)
	f.records = append(f.records, newRecord(p.ResourceId, 2, "Failed"))
}

// TestPermanentRefusalNamesWhoActs: a person must act, and no sentence promises that waiting helps, however long it lasts.
func TestPermanentRefusalNamesWhoActs(t *testing.T) {
	for properties, want := range map[string]adminv1.Party{"properties.labels: ": adminv1.PartyCustomer, "": adminv1.PartySRE} {
		for _, later := range []time.Duration{0, time.Minute, 24 * time.Hour} {
			f := createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) { f.refusePool(properties) })
			f.now = now.Add(later)
			explained := f.explain()
			item := explained.Items[0]
			if item.Code != adminv1.ExplanationApplyRefused || item.Responsible != want || item.Layer != "management-cluster" {
				t.Errorf("%q after %s: %+v", properties, later, item)
			}
			for _, promise := range []string{"No action is needed", "automatically", "keeps retrying"} {
				if strings.Contains(explained.Text(), promise) {
					t.Errorf("%q after %s: the text has %q", properties, later, promise)
				}
			}
		}
	}
}

func TestSituations(t *testing.T) {
	const id = "1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae"
	published := layer("maestro", "Published", "Maestro accepted the desired state.", 4*time.Minute)
	applied := layer("management-cluster", "Applied", "The desired state is applied on the management cluster.", 4*time.Minute)
	situations := map[string]facts{
		"ready": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.nodePools = []*csv1.NodePool{pool("workers", unchanged[*csv1.NodePool]), pool("infra", unchanged[*csv1.NodePool])}
		}),
		"etcd-of-cluster-away": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			// admin also noticed that the API server does not respond, and does not know why.
			f.components = []adminv1.Component{{Name: "API server of demo", Layer: adminv1.ComponentHostedAPI, ProvisionShard: "mgmt-1", State: adminv1.ComponentNotReady, Time: now}}
			f.health = &adminv1.Health{API: adminv1.HealthUnavailable, Since: ago(4 * time.Minute), Concerns: []adminv1.HealthConcern{{Kind: "etcd_fails", Since: ago(4 * time.Minute), Fault: "service",
				Summary: "its etcd does not answer", Evidence: "outside livez: etcd (status 500: etcd)", Help: "Check the pods and volumes of etcd in the namespace of the control plane."}}}
		}),
		"api-overloaded": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.health = &adminv1.Health{API: adminv1.HealthUnavailable, Since: ago(2 * time.Minute), Concerns: []adminv1.HealthConcern{{Kind: "api_overloaded", Since: ago(2 * time.Minute), Fault: "customer",
				Summary: "it rejects requests because it has too many", Evidence: "outside livez: overloaded (status 429)",
				Help: "Find the clients that send too many requests in the audit log of the API server, or set a larger size class."}}}
		}),
		"api-unknown": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.health = &adminv1.Health{API: adminv1.HealthUnknown, Reason: adminv1.HealthMonitorAway, Detail: "monitor reported last at 2026-11-21T03:02:00Z"}
		}),
		"waiting-for-control-plane": beingCreated(4*time.Minute, installing(4*time.Minute, published, applied,
			layer("control-plane", "ControlPlaneComponentsNotAvailable", "Waiting for components to be available: openshift-apiserver, oauth-openshift", 90*time.Second))),
		"no-capacity": beingCreated(25*time.Minute, cluster(func(c *csv1.Cluster) {
			c.Status = &csv1.ClusterStatus{Phase: csv1.ClusterPhase_CLUSTER_PHASE_PENDING, ClusterId: id,
				Progress: entries(layer("placement", "WaitingForCapacity", "Waiting for a provision shard with a free place.", 25*time.Minute))}
		}), func(f *facts) {
			f.shards = []*csv1.ProvisionShard{{Name: "mgmt-1", Capacity: 100, Clusters: 100}, {Name: "mgmt-2", Capacity: 100, Clusters: 40, Cordoned: true,
				State: csv1.ProvisionShardState_PROVISION_SHARD_STATE_CORDONED, StateActor: &csv1.Actor{Name: "ada@hcpmesh.example", Reason: "node image update"}}}
		}),
		"manifests-rejected": beingCreated(30*time.Minute, installing(30*time.Minute,
			layer("maestro", "Refused", "refused: the bundle has 612352 bytes, and an MQTT message carries 512000", 30*time.Minute),
			layer("management-cluster", "Waiting", "Waiting for the agent of the management cluster.", 30*time.Minute),
			layer("control-plane", "Waiting", "Waiting for the first status of the HostedCluster.", 30*time.Minute)), func(f *facts) {
			f.cluster.Status.Phase = csv1.ClusterPhase_CLUSTER_PHASE_FAILED
			f.records[0].provisioningState = "Failed"
			f.operations = []operation{terminal(createID, "Create", clusterID, "Failed", 30*time.Minute, 30*time.Minute-2*time.Second)}
			f.operations[0].code, f.operations[0].message = "Refused", "refused: the bundle has 612352 bytes, and an MQTT message carries 512000"
		}),
		"property-refused": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) { f.refusePool("properties.labels: ") }),
		"apply-refused":    createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) { f.refusePool("") }),
		"rendering-refused": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.Progress[2] = layer("management-cluster", "Refused", "HostedCluster demo: spec.etcd.managed.storage.type: Unsupported value", 3*time.Hour)
		})),
		"maestro-unavailable": beingCreated(6*time.Minute, installing(6*time.Minute,
			layer("maestro", "Retrying", "Publishing to Maestro failed and is retried: publishing: Unavailable: connection error: dial tcp 10.0.4.7:8090: connect: connection refused", 6*time.Minute),
			layer("management-cluster", "Waiting", "Waiting for the agent of the management cluster.", 6*time.Minute),
			layer("control-plane", "Waiting", "Waiting for the first status of the HostedCluster.", 6*time.Minute))),
		"agent-unresponsive": beingCreated(12*time.Minute, installing(12*time.Minute, layer("maestro", "Published", "Maestro accepted the desired state.", 12*time.Minute),
			layer("management-cluster", "Waiting", "Waiting for the agent of the management cluster.", 12*time.Minute),
			layer("control-plane", "Waiting", "Waiting for the first status of the HostedCluster.", 12*time.Minute)), func(f *facts) {
			f.shards = []*csv1.ProvisionShard{{Name: "mgmt-1", Capacity: 100, Clusters: 71, LastHeardTime: stamp(14 * time.Minute), UnansweredSince: stamp(12 * time.Minute), AgentSilent: true}}
			f.nodePools = []*csv1.NodePool{pool("workers", func(p *csv1.NodePool) {
				p.Status = &csv1.NodePoolStatus{Phase: csv1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING, Progress: entries(
					layer("placement", "Placed", "Placed with its cluster on provision shard mgmt-1.", 11*time.Minute),
					layer("maestro", "Published", "Maestro accepted the desired state.", 11*time.Minute),
					layer("management-cluster", "Waiting", "Waiting for the agent of the management cluster.", 11*time.Minute),
					layer("node-pool", "WaitingForNodes", "0 of 2 nodes are ready.", 11*time.Minute))}
			})}
		}),
		"api-server-not-available": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.Progress[3] = layer("control-plane", "EtcdWaitingForQuorum", "Waiting for etcd to reach quorum", 7*time.Minute)
			c.Status.Conditions = []*csv1.Condition{condition("Available", "False", "EtcdWaitingForQuorum", "Waiting for etcd to reach quorum", 7*time.Minute)}
		}), func(f *facts) {
			f.nodePools = []*csv1.NodePool{pool("workers", unchanged[*csv1.NodePool])}
		}),
		"certificate-renewal-failing": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.Progress = append(c.Status.Progress, layer("azure", "RenewalFailing", "Renewing the certificate of the API server failed: QuotaExceeded", 3*time.Hour))
		})),
		"identity-deleted": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.Progress = append(c.Status.Progress, layer("azure", "IdentityDeleted",
				"Attempt 3 to read the identities again failed: the customer must act: the identity /subscriptions/s/x of properties.platform.operatorsAuthentication.userAssignedIdentities.serviceManagedIdentity does not exist", time.Hour))
		})),
		"identity-read-failing": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.Progress = append(c.Status.Progress, layer("azure", "IdentityReadFailing", "Attempt 9 to read the identities again failed: Azure returned 403 AuthorizationFailed", 30*time.Hour))
		})),
		"requirements-unmet": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.nodePools = []*csv1.NodePool{pool("workers", func(p *csv1.NodePool) {
				p.Generation, p.Status.Phase = 2, csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING
				p.Status.Progress = append([]*csv1.LayerProgress{p.Status.Progress[0], layer("azure", "RequirementsUnmet",
					"properties.platform.vmSize: the missing nodes (3 of the size Standard_D8s_v3) need 24 cores in westus3, and the quota of the subscription has left: 10 of 100 of the family standardDSv3Family. Request a higher quota from Azure, or delete virtual machines.",
					34*time.Minute)}, p.Status.Progress[1:]...)
			})}
			f.records = append(f.records, newRecord(clusterID+"/nodePools/workers", 2, "Updating"))
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID+"/nodePools/workers", 34*time.Minute, time.Hour))
		}),
		"nodes-not-ready": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.nodePools = []*csv1.NodePool{pool("workers", func(p *csv1.NodePool) {
				p.Generation, p.Status.Phase = 2, csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING
				p.Status.Progress[3] = layer("node-pool", "WaitingForNodes", "2 of 5 nodes are ready.", 34*time.Minute)
				p.Status.Conditions = []*csv1.Condition{condition("AllMachinesReady", "False", "Provisioning", "3 of 5 machines are not ready", 34*time.Minute)}
			})}
			f.records = append(f.records, newRecord(clusterID+"/nodePools/workers", 2, "Updating"))
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID+"/nodePools/workers", 34*time.Minute, time.Hour))
		}),
		"awaiting-secret": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.externalAuths = []*csv1.ExternalAuth{{Uid: "0f6cf2d5-8a57-4d65-b1c7-1b0f0c4de931", ResourceId: clusterID + "/externalAuths/entra", Generation: 1, Status: &csv1.ExternalAuthStatus{
				Phase: csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, ObservedGeneration: 1,
				AwaitedSecrets: []*csv1.AwaitedSecret{{ComponentName: "console", ComponentNamespace: "openshift-console", Namespace: "openshift-config", Name: "entra-console-openshift-console", Key: "clientSecret"}},
				Progress: entries(layer("placement", "Placed", "", time.Hour), layer("maestro", "Published", "", time.Hour), layer("management-cluster", "Applied", "", time.Hour),
					layer("control-plane", "AwaitingSecret", "Waiting for the customer to create, in the cluster, with key clientSecret: Secret openshift-config/entra-console-openshift-console.", 26*time.Minute)),
			}}}
			f.records = append(f.records, newRecord(clusterID+"/externalAuths/entra", 1, "AwaitingSecret"))
			f.operations = append(f.operations, inProgress(updateID, "Create", clusterID+"/externalAuths/entra", 26*time.Minute, time.Hour))
		}),
		"issuer-refused": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.externalAuths = []*csv1.ExternalAuth{{Uid: "0f6cf2d5-8a57-4d65-b1c7-1b0f0c4de931", ResourceId: clusterID + "/externalAuths/entra", Generation: 1, Status: &csv1.ExternalAuthStatus{
				Phase: csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, ObservedGeneration: 1,
				Progress: entries(layer("placement", "Placed", "", time.Hour), layer("maestro", "Published", "", time.Hour), layer("management-cluster", "Applied", "", time.Hour),
					layer("control-plane", "IssuerRefused", "The control plane cannot read the keys of the issuer at login.example.com:443: control planes connect only to public addresses, and the host has none.", 26*time.Minute)),
			}}}
			f.records = append(f.records, newRecord(clusterID+"/externalAuths/entra", 1, "Succeeded"))
		}),
		"update-rolling-out": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.Phase, c.Status.ActiveVersions = 2, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, []string{"4.21.4", "4.20.16"}
			c.Status.Progress[3] = layer("control-plane", "RollingOut", "Waiting for the control plane to complete its release.", 11*time.Minute)
		}), func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Updating")
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID, 11*time.Minute, time.Hour))
			f.nodePools = []*csv1.NodePool{pool("workers", unchanged[*csv1.NodePool])}
		}),
		"paused": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.Phase = 2, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING
			c.Status.Progress[3] = layer("control-plane", "Reconciling", "Waiting for HyperShift to act on the desired state.", 50*time.Minute)
			c.Overrides = &csv1.ClusterOverrides{Pause: &csv1.ClusterPause{Until: timestamppb.New(now.Add(70 * time.Minute)), Time: stamp(50 * time.Minute),
				Actor: &csv1.Actor{Name: "ada@hcpmesh.example", Reason: "etcd is being restored by hand", Ticket: "INC-4711"}}}
		}), func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Updating")
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID, 50*time.Minute, time.Hour))
			f.nodePools = []*csv1.NodePool{pool("workers", func(p *csv1.NodePool) {
				p.Generation, p.Status.Phase = 2, csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING
				p.Status.Progress[3] = layer("node-pool", "WaitingForNodes", "2 of 5 nodes are ready.", 30*time.Minute)
			})}
		}),
		"foreign-fields": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.Phase = 2, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING
			c.Status.Progress[2] = layer("management-cluster", "ForeignFields", "kubectl-edit set spec.pausedUntil to true, which stops HyperShift.", 9*time.Minute)
			c.Status.Progress[3] = layer("control-plane", "Reconciling", "Waiting for HyperShift to act on the desired state.", 8*time.Minute)
		}), func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Updating")
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID, 8*time.Minute, time.Hour))
			f.nodePools = []*csv1.NodePool{pool("workers", func(p *csv1.NodePool) {
				p.Status.Progress[2] = layer("management-cluster", "ForeignFields", "kubectl-edit set spec.nodeDrainTimeout to 5m.", 9*time.Minute)
			})}
		}),
		"upgrade-rolling-out": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.ActiveVersions = []string{"4.21.4", "4.20.16"}
			c.Status.Progress = append(c.Status.Progress, layer("upgrade", "ControlPlane", "Upgrade 0b7a to 4.21.4: The control plane is being upgraded from 4.20.16 to 4.21.4.", 7*time.Minute))
		}), func(f *facts) {
			f.upgrades = []*csv1.Upgrade{{Uid: "0b7a4b1e-7a55-4f0e-9d1c-2f6f3c9a7c41", Spec: &csv1.UpgradeSpec{Version: "4.21.4", Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_OPERATOR,
				Actor: &csv1.Actor{Name: "ada@hcpmesh.example", Reason: "4.20 leaves support"}}, Status: &csv1.UpgradeStatus{State: csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, FromVersion: "4.20.16",
				Steps: []*csv1.UpgradeStep{{State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING, Components: components(3 * time.Minute),
					Message: "The control plane is rolling out 4.21.4. 3 of 6 components are at 4.21.4; waiting for kube-controller-manager, kube-scheduler."}}}}}
		}),
		"upgrade-component-stuck": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.Phase, c.Status.ActiveVersions = 2, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING, []string{"4.21.4", "4.20.16"}
			c.Status.Progress[3] = layer("control-plane", "RollingOut", "Waiting for the control plane to complete its release.", 75*time.Minute)
		}), func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Updating")
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID, 75*time.Minute, 2*time.Hour))
			f.upgrades = []*csv1.Upgrade{{Uid: "0b7a4b1e-7a55-4f0e-9d1c-2f6f3c9a7c41", Spec: &csv1.UpgradeSpec{Version: "4.21.4", Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_CUSTOMER, ClusterGeneration: 2},
				Status: &csv1.UpgradeStatus{State: csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, FromVersion: "4.20.16",
					Steps: []*csv1.UpgradeStep{{State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING, Components: components(68 * time.Minute),
						Message: "The control plane is rolling out 4.21.4. 3 of 6 components are at 4.21.4; waiting for kube-controller-manager, kube-scheduler."}}}}}
		}),
		"upgrade-awaiting-acknowledgement": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Status.Progress = append(c.Status.Progress, layer("upgrade", "AwaitingAcknowledgement", "Upgrade 0b7a to 4.21.4: The upgrade to another minor version", 3*time.Hour))
		}), func(f *facts) {
			f.upgrades = []*csv1.Upgrade{{Uid: "0b7a4b1e-7a55-4f0e-9d1c-2f6f3c9a7c41", Spec: &csv1.UpgradeSpec{Version: "4.21.4", Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_OPERATOR,
				Actor: &csv1.Actor{Name: "ada@hcpmesh.example", Reason: "4.20 leaves support"}}, Status: &csv1.UpgradeStatus{State: csv1.UpgradeState_UPGRADE_STATE_WAITING, FromVersion: "4.20.16",
				Gates: []*csv1.UpgradeGate{{Name: "cluster-ready", State: csv1.UpgradeGateState_UPGRADE_GATE_STATE_PASSED},
					{Name: "minor-version", State: csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING, CanBeAcknowledged: true,
						Message: "The upgrade to another minor version, 4.21.4, removes APIs that workloads may still use. An SRE must acknowledge this gate."}}}}}
		}),
		"deleting": beingDeleted(3*time.Minute, 140*time.Second, unchanged[*csv1.DeletionStep]),
		"deletion-stuck": beingDeleted(5*time.Hour, 4*time.Hour+52*time.Minute, func(step *csv1.DeletionStep) {
			step.Attempts = 290
			step.Actions = []*csv1.DeletionStepAction{{Actor: &csv1.Actor{Name: "ada@hcpmesh.example", Reason: "paged, 12th of the night"}, Time: stamp(9 * time.Minute)}}
		}),
		"deletion-blocked-by-finalizer": beingDeleted(5*time.Hour, 4*time.Hour+52*time.Minute, func(step *csv1.DeletionStep) {
			step.Finalizers = []string{"backup.example.com/hook"}
			step.WaitsFor = strings.Replace(step.WaitsFor, "hypershift.openshift.io/finalizer", "backup.example.com/hook", 1)
		}),
		"deletion-not-accepted": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.records[0].provisioningState = "Deleting"
			f.operations = append(f.operations, inProgress(deleteID, "Delete", clusterID, 6*time.Minute, 12*time.Hour))
			f.deletions = clusterDeletion(deletion.Facts{ChildrenMarked: true, Notes: []adminv1.DeletionNote{{Kind: deletion.StepFleetAccepted, Attempts: 14,
				LastError: "Cluster Service cannot be reached: connection refused"}}}, 6*time.Minute)
		}),
		"deletion-not-billed": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.DeleteTime, c.Status.Phase = stamp(40*time.Minute), csv1.ClusterPhase_CLUSTER_PHASE_DELETED
		}), func(f *facts) {
			f.records[0].provisioningState = "Deleting"
			f.operations = append(f.operations, inProgress(deleteID, "Delete", clusterID, 40*time.Minute, 12*time.Hour))
			f.deletions = clusterDeletion(deletion.Facts{ChildrenMarked: true, FleetAccepted: true, FleetDeleted: true, FleetDeletedTime: now.Add(-9 * time.Minute),
				Notes: []adminv1.DeletionNote{{Kind: deletion.StepBillingEnded, Attempts: 16, LastError: "the database answered with status 403"}}}, 40*time.Minute)
		}),
		"operation-expired": createdYesterday(cluster(func(c *csv1.Cluster) { c.Generation, c.Status.ObservedGeneration = 2, 2 }), func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Failed")
			failed := terminal(updateID, "Update", clusterID, "Failed", 3*time.Hour, 2*time.Hour)
			failed.code, failed.message = "DeadlineExceeded", "The operation was not complete within 1h0m0s."
			f.operations = append(f.operations, failed)
		}),
		"request-not-delivered": beingCreated(8*time.Minute, nil),
		"cluster-service-unavailable": beingCreated(2*time.Minute, nil, func(f *facts) {
			f.unavailable = map[string]string{adminv1.LayerClusterService: "connection refused"}
		}),
		"postgresql-away": beingCreated(2*time.Minute, nil, func(f *facts) {
			f.unavailable = map[string]string{adminv1.LayerClusterService: "It did not respond in time."}
			f.components = regionWith(adminv1.ComponentPostgreSQL, adminv1.ComponentUnresponsive, adminv1.ComponentClusterService, adminv1.ComponentMaestroServer)
		}),
		"agent-away":             withComponents(inFlight()["scale"], adminv1.ComponentAgent, adminv1.ComponentUnreachable),
		"backend-away":           withComponents(inFlight()["update"], adminv1.ComponentBackend, adminv1.ComponentUnresponsive),
		"cosmos-db-disk-full":    withComponents(inFlight()["quiet"], adminv1.ComponentCosmosDB, adminv1.ComponentDiskFull),
		"hosted-api-server-away": withComponents(inFlight()["quiet"], adminv1.ComponentHostedAPI, adminv1.ComponentUnresponsive),
		"operation-not-completed": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.ObservedGeneration = 2, 2
			c.Status.Progress[3] = layer("control-plane", "Available", "The hosted control plane is available", 40*time.Second)
		}), func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Updating")
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID, 3*time.Minute, time.Hour))
		}),
		"revoking": createdYesterday(cluster(unchanged[*csv1.Cluster]), func(f *facts) {
			f.revocations = []*csv1.BreakGlassRevocation{{Uid: "d0c4d6a0-5a3e-4d5e-93f5-6b2b8e2b1f31", Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, Requester: "admin@contoso.example",
				Status: &csv1.BreakGlassRevocationStatus{State: csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING, Progress: entries(
					layer("maestro", "Published", "", 9*time.Second), layer("management-cluster", "Applied", "", 8*time.Second),
					layer("control-plane", "AwaitingNewCertificatesTrusted", "Waiting for the API server to trust the new signer", 6*time.Second))}}}
		}),
	}
	for name, facts := range situations {
		t.Run(name, func(t *testing.T) {
			for _, p := range facts.nodePools {
				if !slices.ContainsFunc(facts.records, func(r record) bool { return r.resourceID == p.ResourceId }) {
					facts.records = append(facts.records, newRecord(p.ResourceId, p.Generation, "Succeeded"))
				}
			}
			got := facts.explain().Text()
			path := filepath.Join(golden, name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got (rewrite with go test -update):\n%s", diff)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(golden, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if _, known := situations[name]; !known && !strings.HasPrefix(name, "region-") { // see TestRegionSituations
			t.Errorf("%s belongs to no situation", file)
		}
	}
}

// TestRecordedDumps explains what the backend and Cluster Service report in their own tests.
func TestRecordedDumps(t *testing.T) {
	type want struct {
		Code, Layer, State string
		Responsible        adminv1.Party
		Overdue            bool
	}
	const service, sre, customer = adminv1.PartyService, adminv1.PartySRE, adminv1.PartyCustomer
	tests := map[string]map[time.Duration]want{
		"cluster-service/ready":                     {0: {Code: adminv1.ExplanationReady, Responsible: adminv1.PartyNone}},
		"cluster-service/upgrade-rolling-out":       {5 * time.Second: {adminv1.ExplanationWaiting, "upgrade", "ControlPlane", service, false}},
		"cluster-service/no-capacity":               {0: {adminv1.ExplanationWaiting, "placement", "WaitingForCapacity", sre, false}},
		"cluster-service/agent-unresponsive":        {5 * time.Second: {adminv1.ExplanationWaiting, "management-cluster", "Waiting", service, false}, 10 * time.Minute: {adminv1.ExplanationWaiting, "management-cluster", "Waiting", sre, true}},
		"cluster-service/maestro-unavailable":       {10 * time.Minute: {adminv1.ExplanationWaiting, "maestro", "Retrying", sre, true}},
		"cluster-service/manifests-rejected":        {time.Minute: {adminv1.ExplanationManifestsRejected, "maestro", "Refused", sre, false}},
		"cluster-service/control-plane-starting":    {4 * time.Minute: {adminv1.ExplanationWaiting, "control-plane", "EtcdWaitingForQuorum", service, false}},
		"cluster-service/control-plane-unavailable": {7 * time.Minute: {adminv1.ExplanationWaiting, "control-plane", "EtcdWaitingForQuorum", sre, false}},
		"cluster-service/nodes-not-ready":           {30 * time.Minute: {adminv1.ExplanationWaiting, "node-pool", "WaitingForNodes", sre, true}},
		"cluster-service/awaiting-secret":           {time.Hour: {adminv1.ExplanationWaiting, "control-plane", "AwaitingSecret", customer, false}},
		"cluster-service/update-rolling-out":        {2 * time.Minute: {adminv1.ExplanationWaiting, "control-plane", "RollingOut", service, false}},
		"cluster-service/deleting":                  {2 * time.Minute: {adminv1.ExplanationDeleting, "management-cluster", "hosted-cluster", service, false}, 5 * time.Hour: {adminv1.ExplanationDeleting, "management-cluster", "hosted-cluster", sre, true}},
		"cluster-service/revoking":                  {time.Second: {adminv1.ExplanationWaiting, "control-plane", "AwaitingRootCertificatesRegenerated", service, false}},
		"backend/not-delivered":                     {10 * time.Second: {adminv1.ExplanationNotDelivered, "cluster-service", "Unknown", service, false}, 8 * time.Minute: {adminv1.ExplanationNotDelivered, "cluster-service", "Unknown", sre, true}},
		"backend/rejected":                          {time.Minute: {adminv1.ExplanationRequestRejected, "cluster-service", "Unknown", customer, false}},
		"backend/expired":                           {2 * time.Hour: {adminv1.ExplanationNoProgress, "cluster-service", "NoProgress", sre, true}},
		"backend/expired-then-ready":                {2 * time.Hour: {Code: adminv1.ExplanationOperationFailed, Responsible: customer}},
		"backend/deleted":                           {time.Minute: {Code: adminv1.ExplanationDeleted, Responsible: adminv1.PartyNone}},
	}
	for _, name := range recordeddump.Names(t) {
		if tests[name] == nil {
			t.Errorf("the recording %s is not explained", name)
		}
	}
	for name, byAge := range tests {
		for age, want := range byAge {
			t.Run(name+" after "+age.String(), func(t *testing.T) {
				dump := recordeddump.Read(t, name)
				dump.TakenAt = dump.TakenAt.Add(age)
				explained := Explain("demo", dump, nil)
				first := explained.Items[0]
				if len(explained.Items) != 1 || want != (struct {
					Code, Layer, State string
					Responsible        adminv1.Party
					Overdue            bool
				}{first.Code, first.Layer, first.State, first.Responsible, first.Overdue}) {
					t.Errorf("want only %+v:\n%+v\n%s", want, explained.Items, explained.Text())
				}
				if strings.Contains(explained.Text(), unknownState) {
					t.Errorf("the state is unknown:\n%s", explained.Text())
				}
			})
		}
	}
}

// codes returns the codes of an item's actions.
func codes(sentences []adminv1.Sentence) []string {
	var list []string
	for _, s := range sentences {
		list = append(list, s.Code)
	}
	return list
}

// TestUnknownEnumerationsAreExplained covers a rollout in which Cluster Service reports phases and states that this release
// does not know, and messages that begin with any letter.
func TestUnknownEnumerationsAreExplained(t *testing.T) {
	f := createdYesterday(cluster(func(c *csv1.Cluster) {
		c.Status.Phase = 99
		c.Status.Progress[3] = layer("control-plane", "Übergang", "Élu par les nœuds", time.Minute)
	}))
	f.nodePools = []*csv1.NodePool{pool("workers", func(p *csv1.NodePool) { p.Status.Phase = 77 })}
	explained := f.explain()
	if text := explained.Text(); len(explained.Items) == 0 || !strings.Contains(text, "Élu par les nœuds") || strings.ContainsRune(text, '\ufffd') {
		t.Errorf("%+v\n%s", explained.Items, text)
	}
}

// TestExpiredDeliveryAsksCustomerToRepeat checks that no explanation announces a retry of an operation that reached its
// deadline before Cluster Service accepted the request: the backend does not send it any more.
func TestExpiredDeliveryAsksCustomerToRepeat(t *testing.T) {
	expired := func(id, request string) []operation {
		o := terminal(id, request, clusterID, "Failed", 3*time.Hour, 2*time.Hour)
		o.code, o.message = "DeadlineExceeded", "The operation was not complete within 1h0m0s."
		return []operation{o}
	}
	created := facts{now: now, name: "demo", target: adminv1.Cluster{ResourceID: clusterID}, records: []record{newRecord(clusterID, 1, "Failed")}, operations: expired(createID, "Create")}
	changed := createdYesterday(cluster(unchanged[*csv1.Cluster]))
	changed.records, changed.operations = []record{newRecord(clusterID, 2, "Failed")}, expired(updateID, "Update")
	for name, f := range map[string]facts{"create": created, "update": changed} {
		item := f.explain().Items[0]
		if item.Code != adminv1.ExplanationDeliveryExpired || item.Responsible != adminv1.PartyCustomer || !slices.Equal(codes(item.Actions), []string{adminv1.SentenceAction}) {
			t.Errorf("%s: %+v", name, item)
		}
	}
}

// TestExpiredDeletionIsNotReady checks that an unchanged fleet is not reported as the result of a failed deletion.
func TestExpiredDeletionIsNotReady(t *testing.T) {
	f := createdYesterday(cluster(unchanged[*csv1.Cluster]))
	failed := terminal(deleteID, "Delete", clusterID, "Failed", 13*time.Hour, time.Hour)
	failed.code, failed.message = "DeadlineExceeded", "The operation was not complete within 12h0m0s."
	f.records, f.operations = []record{newRecord(clusterID, 1, "Failed")}, []operation{failed}
	item := f.explain().Items[0]
	if item.Code != adminv1.ExplanationDeletionFailed || item.Responsible != adminv1.PartyCustomer || !slices.Equal(codes(item.Evidence), []string{adminv1.SentenceOperationError}) {
		t.Errorf("%+v", item)
	}
}
