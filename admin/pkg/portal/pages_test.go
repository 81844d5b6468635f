package portal

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	testUID        = "3f6c1d9e-6f0a-4c9b-8a4e-2d7b5e1f0c11"
	testDeleting   = "8a1e4b70-2c55-4f0e-9d3b-6f1f3b7c0002"
	testOperation  = "5b0e7c1a-90d4-4d6f-a1b7-0e2c4d6f8a01"
	testElevation  = "c2a9d5e4-3b1f-4a7e-8c6d-7f9a1b3c5d02"
	testResourceID = "/subscriptions/00000000-0000-0000-0000-0000000000aa/resourceGroups/payments/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/"
	// hostile is what a customer or a cluster may choose as a name, a message or a log line.
	hostile = `</td></table><script>alert(1)</script><img src=x onerror=alert(2)>"'{{.}}javascript:alert(3)`
)

// ago returns a time before the time of the tests.
func ago(d time.Duration) time.Time { return testTime.Add(-d) }

func stamp(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(ago(d)) }

// fill sets the responses of the API to those of a busy region. text is what customers, clusters and engineers chose.
func (f *fakeAPI) fill(text string) {
	created, deleted, expires, started := ago(41*24*time.Hour), ago(52*time.Minute), testTime.Add(48*time.Minute), ago(12*time.Minute)
	cluster := adminv1.Cluster{UID: testUID, ResourceID: testResourceID + "payments-prod", Name: "payments-prod", SubscriptionID: "00000000-0000-0000-0000-0000000000aa", Location: "westus3",
		ProvisioningState: "Succeeded", Phase: "Ready", Verdict: "Waiting", ClusterID: "1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae", Namespace: "ocm-local-1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae", ProvisionShard: "mgmt-1", Version: "4.20.8",
		APIURL: "https://api.payments.0ulz.westus3.example:443", CreateTime: &created}
	waiting := cluster
	waiting.Concern = &adminv1.ClusterConcern{SubjectID: cluster.ResourceID + "/nodePools/workers", Layer: "node-pool", State: "WaitingForNodes", Since: ago(3*time.Hour + 20*time.Minute)}
	other := adminv1.Cluster{UID: testDeleting, ResourceID: testResourceID + "checkout-stage", Name: "checkout-stage", SubscriptionID: cluster.SubscriptionID, Phase: "Ready", Verdict: "Deleting", ProvisionShard: "mgmt-2",
		Version: "4.20.6", CreateTime: &created, DeleteTime: &deleted, Concern: &adminv1.ClusterConcern{SubjectID: testResourceID + "checkout-stage", Layer: "management-cluster", State: "Deleting", Since: deleted}}
	hostileCluster := waiting
	hostileCluster.UID, hostileCluster.Name, hostileCluster.Version = "not-a-uid<b>", text, text
	hostileCluster.Concern = &adminv1.ClusterConcern{SubjectID: "/x/" + text, Layer: text, State: text, Since: ago(time.Minute)}
	sentence := func(s string) adminv1.Sentence { return adminv1.Sentence{Text: s} }
	item := adminv1.ExplanationItem{Code: adminv1.ExplanationWaiting, Subject: "node pool workers", Layer: "node-pool", State: "WaitingForNodes", Since: ago(3*time.Hour + 20*time.Minute),
		Overdue: true, UsualDuration: "15m", Responsible: adminv1.PartySRE, Summary: sentence("Node pool workers waits for 2 of 5 nodes since 3 h 20 min."),
		Evidence: []adminv1.Sentence{sentence("HyperShift reports: AllNodesHealthy is False: 2 machines have no node: quota of Standard_D8s_v3 in westus3 is used up."), sentence("The same state usually ends within 15 minutes.")},
		Actions:  []adminv1.Sentence{sentence("Ask for quota in the subscription of the cluster, then retry the pending steps."), sentence("The cluster continues without help when Azure has capacity.")},
		Command:  "hcpctl cluster retry payments-prod --reason '<why>' --ticket <ticket>"}
	second := adminv1.ExplanationItem{Subject: "cluster payments-prod", Responsible: adminv1.PartyCustomer, Since: ago(26 * time.Hour), Summary: sentence("The cluster waits for a Secret that the customer has not created: " + text),
		Evidence: []adminv1.Sentence{sentence(text)}, Command: text}
	operation := adminv1.Operation{ID: testOperation, Action: adminv1.ActionClusterRetry, State: adminv1.Running, StartTime: ago(40 * time.Second), LastTransitionTime: ago(38 * time.Second), Attempts: 1,
		Target: adminv1.Target{Kind: "cluster", ID: testUID, ResourceID: cluster.ResourceID, ClusterUID: testUID},
		Actor:  adminv1.Actor{Name: "oncall@example.com", ObjectID: "oncall", Role: adminv1.Operator, ElevationID: testElevation, Reason: "the quota was raised", Ticket: "INC-4711"}}
	failed := operation
	failed.ID, failed.Action, failed.State, failed.Parameters, failed.StartTime, failed.EndTime = "5b0e7c1a-90d4-4d6f-a1b7-0e2c4d6f8a02", adminv1.ActionNodePoolScale, adminv1.Failed, json.RawMessage(`{"replicas":7}`), ago(2*time.Hour), &created
	failed.Error, failed.Actor.Reason = &adminv1.FailureDetail{Code: "QuotaExceeded", Message: text}, text
	elevation := adminv1.Elevation{ID: testElevation, State: adminv1.ElevationActive, Name: "oncall@example.com", ObjectID: "oncall", Class: adminv1.Operate, Role: adminv1.Operator, Reason: "the quota was raised", Ticket: "INC-4711",
		Cluster: &adminv1.ElevationCluster{UID: testUID, ResourceID: cluster.ResourceID}, Duration: "1h0m0s", RequestTime: started, RequestExpirationTime: expires, StartTime: &started, ExpirationTime: &expires, Active: true}
	asked := adminv1.Elevation{ID: "c2a9d5e4-3b1f-4a7e-8c6d-7f9a1b3c5d03", State: adminv1.ElevationRequested, Name: "approver@example.com", ObjectID: "approver", Class: adminv1.BreakGlassAccess, Role: adminv1.BreakGlass,
		Reason: text, Ticket: "INC-4712", Duration: "30m0s", RequestTime: ago(4 * time.Minute), RequestExpirationTime: expires}
	emergency := elevation
	emergency.ID, emergency.Name, emergency.ObjectID, emergency.State, emergency.Emergency, emergency.Active, emergency.Reason, emergency.EndTime = "emergency", text, "approver", adminv1.ElevationEnded, true, false, text, &started
	shard := func(name string, clusters, capacity int32, state clusterservicev1.ProvisionShardState, silent bool) *clusterservicev1.ProvisionShard {
		return &clusterservicev1.ProvisionShard{Name: name, Clusters: clusters, Capacity: capacity, Headroom: capacity - clusters, State: state, AgentSilent: silent, Zones: []string{"1", "2", "3"}, LastHeartbeatTime: stamp(9 * time.Second)}
	}
	shards := []*clusterservicev1.ProvisionShard{
		shard("mgmt-1", 57, 60, clusterservicev1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE, false), shard("mgmt-2", 41, 60, clusterservicev1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE, true),
		shard("mgmt-3", 12, 60, clusterservicev1.ProvisionShardState_PROVISION_SHARD_STATE_CORDONED, false)}
	armOperation := adminv1.ARMOperation{OperationID: "o", Request: "Update", ResourceID: cluster.ResourceID + "/nodePools/workers", Status: "Updating", StartTime: ago(3*time.Hour + 21*time.Minute)}
	pool := adminv1.NodePool{Verdict: "Updating",
		ARM: &adminv1.ARMNodePool{ARMState: adminv1.ARMState{ProvisioningState: "Updating"}, Resource: hub.NodePool{}},
		ClusterService: &adminv1.FleetNodePool{Of: &clusterservicev1.NodePool{Spec: &clusterservicev1.NodePoolSpec{Name: "workers", Size: &clusterservicev1.NodePoolSpec_Replicas{Replicas: 5}},
			Status: &clusterservicev1.NodePoolStatus{Phase: clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_UPDATING, Replicas: 3, Version: "4.20.8"}}}}
	pool.ARM.Resource.Name = "workers"
	deletion := adminv1.Deletion{Kind: "cluster", ResourceID: other.ResourceID, UID: testDeleting, ClusterUID: testDeleting, DeleteTime: deleted,
		Deletion: adminv1.Message[*clusterservicev1.Deletion]{Of: &clusterservicev1.Deletion{Steps: []*clusterservicev1.DeletionStep{
			{Name: "node-pool/workers", Layer: "management-cluster", State: clusterservicev1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: stamp(40 * time.Minute)},
			{Name: "hosted-cluster", Layer: "management-cluster", State: clusterservicev1.DeletionStepState_DELETION_STEP_STATE_RUNNING, Since: stamp(39 * time.Minute), Stuck: true, After: []string{"node-pool/workers"}, Attempts: 6,
				WaitsFor: "the finalizer of another controller on the HostedCluster", LastError: text, Finalizers: []string{text}},
			{Name: "azure", Layer: "azure", State: clusterservicev1.DeletionStepState_DELETION_STEP_STATE_WAITING, Since: stamp(52 * time.Minute), After: []string{"hosted-cluster"}},
		}}}}
	path := "/clusters/" + testUID
	f.responses = map[string]any{
		"/explanation": adminv1.RegionExplanation{Time: testTime, Clusters: 110, NotReady: 3, Items: []adminv1.ExplanationItem{
			{Subject: "the region", Responsible: adminv1.PartySRE, Since: ago(6 * time.Minute), Summary: sentence("The agent of the management cluster mgmt-2 does not answer since 6 min."), Evidence: []adminv1.Sentence{sentence("41 clusters are affected.")},
				Actions: []adminv1.Sentence{sentence("Restart the agent. Works are delivered when it returns.")}, Command: "hcpctl shard show mgmt-2"}},
			Components: []adminv1.Component{{Name: "mgmt-2-maestro-agent", Layer: adminv1.ComponentAgent, State: adminv1.ComponentUnreachable, Since: ago(6 * time.Minute)}, {Name: "backend", State: adminv1.ComponentReady}, {Name: "frontend", State: adminv1.ComponentReady}},
			Concerns:   []adminv1.ConcernGroup{{Layer: "node-pool", State: "WaitingForNodes", ProvisionShard: "mgmt-1", Clusters: 2, OldestSince: ago(3*time.Hour + 20*time.Minute)}, {Layer: "management-cluster", State: "Deleting", ProvisionShard: "mgmt-2", Clusters: 1, OldestSince: deleted}}},
		"/shards":        adminv1.ShardList{Items: adminv1.Messages(shards)},
		"/shards/mgmt-1": adminv1.Message[*clusterservicev1.ProvisionShardReport]{Of: &clusterservicev1.ProvisionShardReport{ProvisionShard: shards[0], Nodes: 312, WantedNodes: 318, DeletingClusters: 1, History: []*clusterservicev1.ProvisionShardChange{{Time: stamp(50 * time.Hour), Actor: &clusterservicev1.Actor{Name: text}, Action: "update", Changes: []string{"capacity 80 → 60"}}}}},
		"/shards/mgmt-1/drain-plan": adminv1.Message[*clusterservicev1.DrainPlan]{Of: &clusterservicev1.DrainPlan{ProvisionShard: shards[0], Moves: []*clusterservicev1.DrainMove{{Cluster: &clusterservicev1.DrainCluster{Uid: testUID, ResourceId: cluster.ResourceID, SizeClass: text, WantedNodes: 5}, ProvisionShard: "mgmt-3"}}, Blocked: []*clusterservicev1.DrainBlocked{{Cluster: &clusterservicev1.DrainCluster{Uid: testUID, ResourceId: testResourceID + text}, Message: text}},
			Sentences: []string{"56 of 57 clusters would move: 19 to mgmt-2 and 37 to mgmt-3.", "1 cluster is being deleted."}}},
		"/clusters":           adminv1.ClusterList{Items: []adminv1.Cluster{waiting, other, hostileCluster}, NextPageToken: "next & more"},
		path:                  cluster,
		path + "/explanation": adminv1.Explanation{Time: testTime, Cluster: cluster, Items: []adminv1.ExplanationItem{item, second}, Facts: []adminv1.Sentence{sentence("It runs on mgmt-1 with OpenShift 4.20.8."), sentence(text)}, Health: &adminv1.Health{API: adminv1.HealthAvailable, Since: ago(40 * time.Hour)}},
		path + "/status": adminv1.ClusterStatus{Time: testTime, Cluster: cluster, Generation: 14, ObservedGeneration: 14,
			Layers: []adminv1.LayerStatus{{Layer: "placement", State: "Placed", Done: true, Since: created}, {Layer: "azure", State: "Ready", Done: true, Since: created}, {Layer: "maestro", State: "Published", Done: true, Since: ago(3*time.Hour + 21*time.Minute)},
				{Layer: "management-cluster", State: "Applied", Done: true, Since: ago(3*time.Hour + 21*time.Minute)}, {Layer: "control-plane", State: "Available", Done: true, Since: ago(40 * time.Hour)},
				{Layer: "node-pool", State: "WaitingForNodes", Message: "2 of 5 nodes of workers are missing.", Since: ago(3*time.Hour + 20*time.Minute)}},
			Conditions: []adminv1.ConditionStatus{{Type: "Available", Status: "True", Reason: "AsExpected", LastTransitionTime: ago(40 * time.Hour)}, {Type: "Degraded", Status: "False", Reason: "AsExpected", LastTransitionTime: ago(40 * time.Hour)},
				{Type: "Progressing", Status: "True", Reason: text, Message: text, LastTransitionTime: ago(3 * time.Hour)}}},
		path + "/node-pools":     adminv1.NodePoolList{Items: []adminv1.NodePool{pool}},
		path + "/arm-operations": adminv1.ARMOperationList{Items: []adminv1.ARMOperation{armOperation}},
		path + "/timeline": adminv1.Timeline{Time: testTime, Cluster: cluster, Entries: []adminv1.TimelineEntry{
			{Time: ago(3*time.Hour + 21*time.Minute), Layer: adminv1.LayerARM, Kind: adminv1.TimelineOperation, Subject: "nodePools/workers", Summary: "The customer updated node pool workers."},
			{Time: ago(3*time.Hour + 21*time.Minute), Layer: adminv1.LayerClusterService, Kind: adminv1.TimelineDesiredState, Subject: "nodePools/workers", Summary: "Generation 14.", Fields: []adminv1.FieldDifference{{Path: "replicas", Before: "3", After: "5"}}},
			{Time: ago(time.Minute), Layer: adminv1.LayerAdmin, Kind: adminv1.TimelineAction, Summary: text, Person: "oncall@example.com", Reason: text, Ticket: "INC-4711"}},
			Unavailable: map[string]string{adminv1.LayerAlerts: "Prometheus did not answer which alerts fired."}},
		path + "/credentials": adminv1.CredentialList{Items: []adminv1.FleetCredential{{Of: &clusterservicev1.BreakGlassCredential{Uid: "credential-1", CreateTime: stamp(time.Hour),
			Spec: &clusterservicev1.BreakGlassCredentialSpec{Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Requester: "oncall@example.com", Reason: text}, Status: &clusterservicev1.BreakGlassCredentialStatus{State: clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED}}}}},
		path + "/accesses": adminv1.AccessList{Value: []adminv1.Access{{Name: testElevation, Properties: adminv1.AccessProperties{Engineer: adminv1.AccessPerson{Alias: "engineer-0a1b2c3d4e", Name: text}, Class: adminv1.Operate, Scope: "cluster",
			State: adminv1.ElevationEnded, Reason: text, Ticket: "INC-4711", StartTime: started, EndTime: ago(time.Minute), Approval: &adminv1.AccessApproval{Approver: adminv1.AccessPerson{Name: text}, Reason: text},
			Uses:     []adminv1.AccessUse{{ID: "s", Kind: adminv1.AccessUseSession, Level: adminv1.LevelReader, StartTime: &started, EndTime: &started}},
			Activity: []adminv1.AccessActivity{{Verb: "list", Resource: text, Count: 12, Failed: 1, Refused: 2}}, ActivityIncomplete: "The audit cannot be read."}}}},
		path + "/access-records":                  adminv1.AccessRecordList{Value: []adminv1.AccessRecord{{Properties: adminv1.AccessRecordProperties{Time: ago(time.Hour), Person: text, Role: "operator", Action: "clusters.retry", Reason: text, Outcome: "succeeded"}}}},
		path + "/deletion":                        adminv1.ClusterDeletion{Cluster: cluster},
		"/clusters/" + testDeleting:               other,
		"/clusters/" + testDeleting + "/deletion": adminv1.ClusterDeletion{Cluster: other, Items: []adminv1.Deletion{deletion}},
		"/deletions":                              adminv1.DeletionList{Items: []adminv1.Deletion{deletion}},
		"/operations":                             adminv1.OperationList{Items: []adminv1.Operation{operation, failed}},
		"/operations/" + testOperation:            operation,
		"/operations/" + failed.ID:                failed,
		"/elevations":                             adminv1.ElevationList{Items: []adminv1.Elevation{elevation, asked}},
		"/elevations/" + testElevation:            elevation,
		"/elevations/emergency":                   emergency,
		"/elevations/" + asked.ID:                 asked,
		"/audit":                                  adminv1.AuditList{Items: []adminv1.AuditEntry{{Time: operation.StartTime, Operation: &operation}, {Time: asked.RequestTime, Elevation: &asked}}},
		"POST " + path + "/retry":                 operation,
		"POST /elevations":                        elevation,
	}
	f.fillUpgrades(text, cluster)
	f.fillDrift(text, cluster)
	f.fillAlerts(text)
	f.fillSessions(text)
	f.fillEgressLinks(text)
	if text != hostile {
		explained := f.responses[path+"/explanation"].(adminv1.Explanation)
		explained.Items, explained.Facts = explained.Items[:1], explained.Facts[:1]
		f.responses[path+"/explanation"] = explained
		conditions := f.responses[path+"/status"].(adminv1.ClusterStatus).Conditions
		conditions[2].Reason, conditions[2].Message = "ClusterOperatorsUpdating", ""
	}
}

// readPages are the paths of the pages, by the names of their golden files.
var readPages = map[string]string{
	"region": "/", "me": "/me", "clusters": "/clusters", "clusters-all": "/clusters?all=1&phase=Ready", "cluster": "/clusters/" + testUID, "timeline": "/clusters/" + testUID + "/timeline",
	"cluster-operations": "/clusters/" + testUID + "/operations", "credentials": "/clusters/" + testUID + "/credentials", "deletion": "/clusters/" + testDeleting + "/deletion",
	"accesses": "/clusters/" + testUID + "/accesses", "access-records": "/clusters/" + testUID + "/access-records", "operations": "/operations", "operation": "/operations/" + testOperation, "operation-failed": "/operations/5b0e7c1a-90d4-4d6f-a1b7-0e2c4d6f8a02",
	"deletions": "/deletions", "shards": "/shards", "shard": "/shards/mgmt-1", "elevations": "/access", "elevation": "/access/" + testElevation, "elevation-requested": "/access/c2a9d5e4-3b1f-4a7e-8c6d-7f9a1b3c5d03",
	"upgrades": "/upgrades", "upgrade": "/upgrades/" + testUpgrade, "cluster-upgrades": "/clusters/" + testUID + "/upgrades?version=4.21.4&nodePools=all", "upgrade-policies": "/upgrade-policies", "upgrade-policy": "/upgrade-policies/nightly",
	"start-upgrade": "/clusters/" + testUID + "/actions/upgrade?version=4.21.4&nodePools=all", "acknowledge": "/upgrades/" + testUpgrade + "/actions/acknowledge?gate=minor-version", "apply-policy": "/upgrade-policies/nightly/actions/apply",
	"alerts": "/alerts", "silence": "/silences/new?alert=AgentSilent&labels=shard%3Dmgmt-1", "silence-end": "/silences/" + testSilence + "/end",
	"access-sessions": "/access-sessions?show=all&cluster=" + testUID, "access-session": "/access-sessions/" + testSession, "recordings": "/recordings", "recording": "/recordings/" + testRecording,
	"egress-links": "/egress-links", "set-egress-link": "/egress-links/4001/actions/set", "assign-egress-link": "/clusters/" + testUID + "/actions/set-egress-link",
	"drift": "/drift", "orphans": "/orphans", "azure-orphans": "/azure-orphans", "leftovers": "/leftovers", "works": "/clusters/" + testUID + "/works",
	"drain": "/shards/mgmt-1/actions/drain", "force-deletion-step": "/clusters/" + testDeleting + "/actions/force-deletion-step?step=hosted-cluster", "set-placement": "/clusters/" + testUID + "/actions/set-placement",
	"set-shard": "/shards/mgmt-1/actions/set", "delete-drift": "/drift/drifted-1/actions/delete", "set-quota": "/subscriptions/00000000-0000-0000-0000-0000000000aa/actions/set-quota", "elevation-emergency": "/access/emergency",
	"audit": "/audit", "retry": "/clusters/" + testUID + "/actions/retry", "scale": "/clusters/" + testUID + "/actions/scale?pool=workers", "request-elevation": "/access/request",
}

var (
	contentPart = regexp.MustCompile(`(?s)<div id="content".*</main>`)
	keyValue    = regexp.MustCompile(`name="key" value="[^"]+"`)
	revision    = regexp.MustCompile(`data-revision="[^"]+"`)
)

// TestPagesShowHostileTextAsText compares the content of each page with its golden file, and checks that no text of a customer, a cluster or an
// engineer becomes an element, an attribute or a link.
func TestPagesShowHostileTextAsText(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	for name, path := range readPages {
		page := b.get(path)
		if page.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s", name, page.Status, page.body)
			continue
		}
		for _, element := range []string{"<script>alert", "<img src=x", "</td></table>", `href="javascript:`, "ZgotmplZ"} {
			if strings.Contains(page.body, element) {
				t.Errorf("%s contains %s", name, element)
			}
		}
		if strings.Contains(page.body, "style=") || strings.Contains(page.body, "onclick") {
			t.Errorf("%s contains inline code, which the policy forbids", name)
		}
		content := keyValue.ReplaceAllString(contentPart.FindString(page.body), `name="key" value="KEY"`)
		content = revision.ReplaceAllString(content, `data-revision="REVISION"`)
		golden := filepath.Join("testdata", "golden", name+".html")
		if *update {
			must.Do(t, os.MkdirAll(filepath.Dir(golden), 0o755))
			must.Do(t, os.WriteFile(golden, []byte(content+"\n"), 0o644))
		}
		want := must.Get(os.ReadFile(golden))(t)
		if diff := cmp.Diff(strings.TrimSpace(string(want)), strings.TrimSpace(content)); diff != "" {
			t.Errorf("%s (-want +got); run with -update if it is right:\n%s", name, diff)
		}
	}
	if len(h.api.unbounded) > 0 {
		t.Errorf("requests without a deadline: %q", h.api.unbounded)
	}
	if log := h.log.String(); strings.Contains(log, "rendering a page failed") || strings.Contains(log, "a page failed") {
		t.Error(log)
	}
}

// TestFiltersAreThoseOfTheAPI checks that the list of clusters asks the API for the filtered page, and for no other clusters.
func TestFiltersAreThoseOfTheAPI(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	for path, want := range map[string]string{
		"/clusters?concern=node-pool/WaitingForNodes&shard=mgmt-1&age=1h&version=4.19&pageToken=p": "concern=node-pool%2FWaitingForNodes&notReady=true&olderThan=1h&pageSize=50&pageToken=p&shard=mgmt-1&version=4.19",
		"/clusters?all=1&phase=Failed&shard=mgmt-2&version=+4.19.3+":                               "pageSize=50&phase=Failed&shard=mgmt-2&version=4.19.3",
		"/clusters?q=payments": "q=payments",
	} {
		h.api.reads = nil
		page := b.get(path)
		found := false
		for _, read := range h.api.reads {
			found = found || read == adminv1.Root+"/clusters?"+want
		}
		if !found {
			t.Errorf("%s asks for %q", path, h.api.reads)
		}
		if !strings.Contains(path, "q=") && !strings.Contains(page.body, "pageToken=next&#43;%26&#43;more") && !strings.Contains(page.body, "pageToken=next+%26+more") {
			t.Errorf("%s has no link to the next page", path)
		}
	}
}

// TestActionIsRequestedOnce checks the request of an action with and without an elevation, that a form that is sent twice has one key, and that the
// engineer gets the form again with what was entered if admin refuses it.
func TestActionIsRequestedOnce(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	path := "/clusters/" + testUID + "/actions/retry"
	key := regexp.MustCompile(`name="key" value="([^"]+)"`).FindStringSubmatch(b.get(path).body)[1]
	for range 2 {
		if response := b.post(path, url.Values{"key": {key}}); response.location() != "/operations/"+testOperation {
			t.Fatalf("%s to %q: %s", response.Status, response.location(), response.body)
		}
	}
	want := apiRequest{Method: http.MethodPost, Path: "/clusters/" + testUID + "/retry", Key: key, Person: "oncall@example.com"}
	if diff := cmp.Diff([]apiRequest{want, want}, h.api.requests); diff != "" {
		t.Errorf("requests with an elevation (-want +got):\n%s", diff)
	}

	h.api.requests = nil
	h.api.responses["/elevations"] = adminv1.ElevationList{}
	if form := b.get(path); !strings.Contains(form.body, `name="reason"`) || !strings.Contains(form.body, "You have none that permits this.") {
		t.Errorf("the form without an elevation: %s", form.body)
	}
	form := url.Values{"key": {"K"}, "reason": {"the quota was raised"}, "ticket": {"INC-4711"}, "length": {"20m"}}
	if response := b.post(path, form); response.location() != "/operations/"+testOperation {
		t.Fatalf("%s to %q", response.Status, response.location())
	}
	first := apiRequest{Method: http.MethodPost, Path: "/elevations", Key: "K-elevation", Person: "oncall@example.com",
		Body: `{"class":"operate","cluster":"` + testUID + `","reason":"the quota was raised","ticket":"INC-4711","duration":"20m"}`}
	want.Key = "K"
	if diff := cmp.Diff([]apiRequest{first, want}, h.api.requests); diff != "" {
		t.Errorf("requests without an elevation (-want +got):\n%s", diff)
	}

	h.api.refused["/elevations"] = 0
	h.api.refused["/clusters/"+testUID+"/retry"] = http.StatusBadRequest
	response := b.post(path, form)
	if response.StatusCode != http.StatusBadRequest || !strings.Contains(response.body, "The request was &lt;refused&gt;.") || !strings.Contains(response.body, `value="the quota was raised"`) ||
		!strings.Contains(response.body, `value="K"`) || !strings.Contains(response.body, `aria-invalid="true"`) {
		t.Errorf("a refused action: %s: %s", response.Status, response.body)
	}
	if response := b.post("/clusters/"+testUID+"/actions/scale", url.Values{"pool": {"workers"}, "replicas": {"many"}}); response.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(response.body, "Must be a number") {
		t.Errorf("an invalid number: %s", response.Status)
	}
	if response := b.get("/clusters/" + testUID + "/actions/none"); response.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown action: %s", response.Status)
	}
}

// succeeded returns an operation after its end.
func succeeded(value any) adminv1.Operation {
	operation := value.(adminv1.Operation)
	end := testTime
	operation.State, operation.EndTime = adminv1.Succeeded, &end
	return operation
}
