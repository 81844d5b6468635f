package explanation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// shardLayers are the layers with a component on each management cluster.
var shardLayers = []string{adminv1.ComponentManagementAPI, adminv1.ComponentAgent, adminv1.ComponentHyperShift, adminv1.ComponentManagementWorker, adminv1.ComponentHostedAPI}

// regionWith returns all components of a region with the management clusters mgmt-1 and mgmt-2. The component of layer is in
// state, on mgmt-1 if each management cluster has one; those of dependents are not ready.
func regionWith(layer string, state adminv1.ComponentState, dependents ...string) []adminv1.Component {
	var components []adminv1.Component
	for _, name := range layers.Layers() {
		shards := []string{""}
		if slices.Contains(shardLayers, name) {
			shards = []string{"mgmt-1", "mgmt-2"}
		}
		for _, shard := range shards {
			c := adminv1.Component{Name: strings.TrimPrefix(shard+"-"+name, "-"), Layer: name, ProvisionShard: shard, State: adminv1.ComponentReady, Time: now, LastReady: now}
			if shard != "mgmt-2" && (name == layer || slices.Contains(dependents, name)) {
				c.State, c.Since, c.LastReady = adminv1.ComponentNotReady, ago(4*time.Minute), ago(4*time.Minute+5*time.Second)
				if name == layer {
					c.State = state
				}
				if c.State == adminv1.ComponentUnresponsive {
					c.Message = "no response within 1.5s"
				}
			}
			components = append(components, c)
		}
	}
	return components
}

func withComponents(f facts, layer string, state adminv1.ComponentState) facts {
	f.components = regionWith(layer, state)
	return f
}

// inFlight returns the facts of a placed cluster with each operation in flight, without one, and while the customer must act.
// Without an outage, Azure is responsible for the scale and the customer for the Secret.
func inFlight() map[string]facts {
	published := layer("maestro", "Published", "Maestro accepted the desired state.", 10*time.Minute)
	applied := layer("management-cluster", "Applied", "The desired state is applied on the management cluster.", 10*time.Minute)
	heard := func(f *facts) {
		f.shards = []*csv1.ProvisionShard{{Name: "mgmt-1", Capacity: 100, Clusters: 71, LastHeardTime: stamp(5 * time.Minute)}}
	}
	return map[string]facts{
		"create": beingCreated(10*time.Minute, installing(10*time.Minute, published, applied,
			layer("control-plane", "ControlPlaneComponentsNotAvailable", "Waiting for components to be available: openshift-apiserver", 6*time.Minute)), heard),
		"update": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.Phase = 2, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING
			c.Status.Progress = append(c.Status.Progress, layer("node-pool", "WaitingForNodes", "1 of 2 nodes are ready.", 6*time.Minute))
		}), heard, func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Updating")
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID, 6*time.Minute, time.Hour))
		}),
		"update of the control plane": createdYesterday(cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.Phase = 2, csv1.ClusterPhase_CLUSTER_PHASE_UPDATING
			c.Status.Progress[3] = layer("control-plane", "Reconciling", "Waiting for HyperShift to observe the change.", 6*time.Minute)
			c.Status.Conditions = []*csv1.Condition{condition("Available", "True", "AsExpected", "The hosted control plane is available", 24*time.Hour)}
		}), heard, func(f *facts) {
			f.records[0] = newRecord(clusterID, 2, "Updating")
			f.operations = append(f.operations, inProgress(updateID, "Update", clusterID, 6*time.Minute, time.Hour))
		}),
		"scale": createdYesterday(cluster(unchanged[*csv1.Cluster]), heard, func(f *facts) {
			p := pool("workers", func(p *csv1.NodePool) {
				p.Generation, p.Status.Phase = 2, csv1.NodePoolPhase_NODE_POOL_PHASE_UPDATING
				p.Status.Progress[3] = layer("node-pool", "WaitingForNodes", "2 of 5 nodes are ready.", 6*time.Minute)
			})
			f.nodePools, f.records = []*csv1.NodePool{p}, append(f.records, newRecord(p.ResourceId, 2, "Updating"))
			f.operations = append(f.operations, inProgress(updateID, "Update", p.ResourceId, 6*time.Minute, time.Hour))
		}),
		"delete": beingDeleted(10*time.Minute, 6*time.Minute, unchanged[*csv1.DeletionStep]),
		"quiet":  createdYesterday(cluster(unchanged[*csv1.Cluster]), heard),
		"awaiting the customer": createdYesterday(cluster(unchanged[*csv1.Cluster]), heard, func(f *facts) {
			id := clusterID + "/externalAuths/entra"
			f.externalAuths = []*csv1.ExternalAuth{{Uid: "auth", ResourceId: id, Generation: 1, Status: &csv1.ExternalAuthStatus{
				Phase: csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET, Progress: entries(layer("control-plane", "AwaitingSecret", "Waiting for a Secret", 26*time.Minute))}}}
			f.records = append(f.records, newRecord(id, 1, "Provisioning"))
		}),
	}
}

// entries returns a list of progress entries.
func entries(l ...*csv1.LayerProgress) []*csv1.LayerProgress { return l }

// TestEveryOutageIsNamedFirst is the matrix of dependency, fault and operation. Whatever the last reports say, the first sentence
// names the component that is away, an SRE must act, and nothing is called ready.
func TestEveryOutageIsNamedFirst(t *testing.T) {
	states := []adminv1.ComponentState{adminv1.ComponentUnresponsive, adminv1.ComponentUnreachable, adminv1.ComponentNotReady, adminv1.ComponentDiskFull}
	for operation := range inFlight() {
		for _, away := range layers.Layers() {
			for _, state := range states {
				t.Run(away+" "+string(state)+" "+operation, func(t *testing.T) {
					f := withComponents(inFlight()[operation], away, state)
					f.readsOf(away)
					explained := f.explain()
					first := explained.Items[0]
					if !waitsFor(away, operation) {
						if first.Code == adminv1.ExplanationLayerAway {
							t.Errorf("the cluster does not depend on it:\n%s", explained.Text())
						}
						return
					}
					if first.Code != adminv1.ExplanationLayerAway || first.Layer != away || first.State != string(state) || first.Responsible != adminv1.PartySRE || len(explained.Items) != 1 {
						t.Fatalf("%+v\n%s", explained.Items, explained.Text())
					}
					title := strings.NewReplacer("{shard}", "mgmt-1", "{cluster}", "demo").Replace(layerTable[away].title)
					if !strings.Contains(strings.ToLower(first.Summary.Text), strings.ToLower(title)) || !strings.Contains(first.Summary.Text, "4 minutes") {
						t.Errorf("the first sentence is %q, want the name %s and the duration", first.Summary.Text, title)
					}
					for _, claim := range []string{"is ready", "No action is needed", "for the customer:", "Azure is working"} {
						if strings.Contains(explained.Text(), claim) {
							t.Errorf("the explanation claims %q:\n%s", claim, explained.Text())
						}
					}
					for _, s := range first.Evidence {
						if (s.Code == adminv1.SentenceLastKnown || s.Code == adminv1.SentenceComponentState) && s.Time.IsZero() {
							t.Errorf("the fact %q has no time", s.Text)
						}
					}
				})
			}
		}
	}
}

// waitsFor reports whether a placed cluster with an operation depends on a layer.
func waitsFor(layer, operation string) bool {
	switch layer {
	case adminv1.ComponentFrontend:
		return false
	case adminv1.ComponentManagementWorker:
		return operation == "delete"
	case adminv1.ComponentHostedAPI:
		return operation != "create" && operation != "delete"
	}
	return true
}

// readsOf removes what cannot be read while a layer is away.
func (f *facts) readsOf(away string) {
	switch away {
	case adminv1.ComponentCosmosDB:
		f.unavailable, f.records, f.operations, f.deletions = map[string]string{adminv1.LayerARM: "It did not respond in time."}, nil, nil, nil
	case adminv1.ComponentClusterService, adminv1.ComponentPostgreSQL:
		f.unavailable = map[string]string{adminv1.LayerClusterService: "It did not respond in time."}
		f.target.ProvisionShard = f.cluster.GetStatus().GetProvisionShard()
		f.cluster, f.nodePools, f.externalAuths, f.shards, f.deletions = nil, nil, nil, nil, nil
	}
}

// TestOutagesOfOthersAreNotNamed checks that an outage on another management cluster, or on any while the cluster waits for its
// placement, does not explain the cluster.
func TestOutagesOfOthersAreNotNamed(t *testing.T) {
	unplaced := beingCreated(time.Minute, cluster(func(c *csv1.Cluster) {
		c.Status = &csv1.ClusterStatus{Phase: csv1.ClusterPhase_CLUSTER_PHASE_PENDING, Progress: entries(layer("placement", "WaitingForCapacity", "", time.Minute))}
	}))
	elsewhere := inFlight()["update"]
	elsewhere.cluster.Status.ProvisionShard = "mgmt-2"
	for name, f := range map[string]facts{"unplaced": unplaced, "elsewhere": elsewhere} {
		for _, away := range shardLayers {
			f.components = regionWith(away, adminv1.ComponentUnresponsive)
			if explained := f.explain(); explained.Items[0].Code != adminv1.ExplanationWaiting {
				t.Errorf("%s, %s: %s", name, away, explained.Text())
			}
		}
	}
}

// TestOutagesAreFoundWithoutComponents checks what is concluded from failed reads, from a silent agent and from an operation that
// stays open, in a region in which admin asks no other components.
func TestOutagesAreFoundWithoutComponents(t *testing.T) {
	done := func(age time.Duration) facts {
		f := inFlight()["update"]
		f.cluster = cluster(func(c *csv1.Cluster) {
			c.Generation, c.Status.ObservedGeneration = 2, 2
			c.Status.Progress[3] = layer("control-plane", "Available", "", age)
		})
		return f
	}
	silent := inFlight()["quiet"]
	silent.shards = []*csv1.ProvisionShard{{Name: "mgmt-1", LastHeardTime: stamp(14 * time.Minute), UnansweredSince: stamp(12 * time.Minute), AgentSilent: true}}
	overdue := inFlight()["quiet"]
	overdue.shards = []*csv1.ProvisionShard{{Name: "mgmt-1", LastHeartbeatTime: stamp(2 * time.Minute)}}
	tests := map[string]struct {
		facts             facts
		away, code, layer string
		party             adminv1.Party
	}{
		"Cosmos DB":            {inFlight()["quiet"], adminv1.ComponentCosmosDB, adminv1.ExplanationLayerAway, adminv1.ComponentCosmosDB, adminv1.PartySRE},
		"Cluster Service":      {inFlight()["scale"], adminv1.ComponentClusterService, adminv1.ExplanationLayerAway, adminv1.ComponentClusterService, adminv1.PartySRE},
		"silent agent":         {silent, "", adminv1.ExplanationLayerAway, adminv1.ComponentAgent, adminv1.PartySRE},
		"no heartbeats":        {overdue, "", adminv1.ExplanationLayerAway, adminv1.ComponentAgent, adminv1.PartySRE},
		"just done":            {done(2 * time.Second), "", adminv1.ExplanationOperationNotCompleted, adminv1.ComponentBackend, adminv1.PartyService},
		"done, operation open": {done(20 * time.Second), "", adminv1.ExplanationOperationNotCompleted, adminv1.ComponentBackend, adminv1.PartySRE},
	}
	for name, tc := range tests {
		tc.facts.readsOf(tc.away)
		explained := tc.facts.explain()
		if first := explained.Items[0]; first.Code != tc.code || first.Layer != tc.layer || first.Responsible != tc.party || strings.Contains(explained.Text(), "is ready") {
			t.Errorf("%s: %+v\n%s", name, first, explained.Text())
		}
	}
}

// TestAgentWithHeartbeatsIsNotAway checks that an agent which does not confirm works but runs is not called away.
func TestAgentWithHeartbeatsIsNotAway(t *testing.T) {
	shards := []*csv1.ProvisionShard{{Name: "mgmt-1", LastHeartbeatTime: stamp(5 * time.Second), UnansweredSince: stamp(12 * time.Minute), AgentSilent: true}}
	if silent := silentAgents(shards, nil, now); len(silent) > 0 {
		t.Errorf("%+v", silent)
	}
}

// TestSilenceOfAgentsIsExplainedByOutages is a regression test: while PostgreSQL could not store heartbeats, all agents seemed to be away.
func TestSilenceOfAgentsIsExplainedByOutages(t *testing.T) {
	shards := []*csv1.ProvisionShard{{Name: "mgmt-1", LastHeartbeatTime: stamp(5 * time.Minute)}}
	for _, away := range append(heartbeatLayers(), adminv1.ComponentManagementAPI, adminv1.ComponentEtcd, adminv1.ComponentAgent) {
		f := withComponents(inFlight()["quiet"], away, adminv1.ComponentNotReady)
		f.shards = shards
		region := Region(RegionFacts{Time: now, Components: f.components, Shards: shards})
		for name, items := range map[string][]adminv1.ExplanationItem{"cluster": f.explain().Items, "region": region.Items} {
			if len(items) != 1 || items[0].Layer != away {
				t.Errorf("%s away, %s: %+v", away, name, items)
			}
		}
	}
	for _, away := range []string{adminv1.ComponentBackend, adminv1.ComponentHyperShift} {
		items := Region(RegionFacts{Time: now, Components: regionWith(away, adminv1.ComponentNotReady), Shards: shards}).Items
		if len(items) != 2 {
			t.Errorf("%s away does not explain the silence of the agent: %+v", away, items)
		}
	}
}

// TestLostControlPlaneIsShownDuringOutages checks that the decision about a lost control plane stays visible.
func TestLostControlPlaneIsShownDuringOutages(t *testing.T) {
	f := withComponents(inFlight()["quiet"], adminv1.ComponentBackend, adminv1.ComponentUnreachable)
	f.cluster.Status.Phase = csv1.ClusterPhase_CLUSTER_PHASE_LOST
	explained := f.explain()
	if codes := []string{explained.Items[0].Code, explained.Items[len(explained.Items)-1].Code}; !slices.Equal(codes, []string{adminv1.ExplanationLayerAway, adminv1.ExplanationControlPlaneLost}) {
		t.Errorf("%v\n%s", codes, explained.Text())
	}
}

// TestUnfoundNamesTheOutage checks the explanation of a cluster that could not be looked up.
func TestUnfoundNamesTheOutage(t *testing.T) {
	explained := Unfound("demo", now, regionWith(adminv1.ComponentPostgreSQL, adminv1.ComponentUnresponsive, adminv1.ComponentClusterService), "It did not respond in time.")
	if explained == nil || !explained.Partial || explained.Items[0].Layer != adminv1.ComponentPostgreSQL || strings.Contains(explained.Text(), "no longer exists") {
		t.Errorf("%+v", explained)
	}
	if explained := Unfound("demo", now, regionWith("", ""), "unknown"); explained != nil {
		t.Errorf("no component is away: %+v", explained)
	}
}
