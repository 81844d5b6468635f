package server_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/admin/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	subscription = "11111111-2222-3333-4444-555555555555"
	uid          = "6f9619ff-8b86-4d01-b42d-00c04fc964ff"
	clusterID    = "0123456789abcdefghijklmnopqrstuv"
	resourceID   = "/subscriptions/" + subscription + "/resourceGroups/Group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/Alpha"
	earlyUID     = "6f9619ff-8b86-4d01-b42d-00c04fc96400"
	earlyID      = "/subscriptions/" + subscription + "/resourceGroups/Group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/early"
	// goneID had two incarnations, of which only deletion records exist. The node pool is in deletion.
	goneID   = "/subscriptions/" + subscription + "/resourceGroups/Group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/gone"
	firstUID = "6f9619ff-8b86-4d01-b42d-00c04fc96401"
	lastUID  = "6f9619ff-8b86-4d01-b42d-00c04fc96402"
	poolUID  = "6f9619ff-8b86-4d01-b42d-00c04fc96403"
	// secret must not appear in responses and logs.
	secret = "bm90LXRvLWJlLXNob3du"
)

// newPopulated returns an admin with clusters.
func newPopulated(t testing.TB) *harness {
	t.Helper()
	h := newHarness(t)
	h.populate(t)
	return h
}

// populate stores one cluster in all layers, and one in ARM only, which has not reached the fleet.
func (h *harness) populate(t testing.TB) {
	t.Helper()
	batch := h.db.NewBatch(subscription)
	database.Create(batch, h.db.Subscriptions(), database.SubscriptionKey(subscription), database.SubscriptionDocument{Subscription: hub.Subscription{State: hub.Registered}})
	for id, clusterUID := range map[string]string{resourceID: uid, earlyID: earlyUID} {
		key := must.Get(database.ResourceKey(id))(t)
		name := id[strings.LastIndex(id, "/")+1:]
		document := database.ClusterDocument{UID: clusterUID, Generation: 1, ProvisioningState: hub.Accepted, ActiveOperationID: "op-of-" + strings.ToLower(name),
			Cluster: hub.Cluster{Resource: hub.Resource{ID: id, Name: name, Location: "westus3"}}}
		database.Create(batch, h.db.Clusters(), key, document)
		database.Create(batch, h.db.Operations(), database.OperationKey(subscription, "westus3", "op-of-"+strings.ToLower(name)), database.OperationDocument{
			OperationID: "op-of-" + strings.ToLower(name), Request: database.CreateRequest, ResourceID: id, UID: clusterUID, Generation: 1, Status: hub.Accepted, StartTime: time.Now().UTC(),
		})
	}
	key := must.Get(database.ResourceKey(resourceID + "/nodePools/np"))(t)
	database.Create(batch, h.db.NodePools(), key, database.NodePoolDocument{UID: "pool", ClusterUID: uid, Generation: 2, ProvisioningState: hub.Succeeded,
		NodePool: hub.NodePool{Resource: hub.Resource{ID: resourceID + "/nodePools/np", Name: "np"}}})
	must.Do(t, batch.Commit(t.Context()))
	h.fleet.clusters = []*clusterservicev1.Cluster{{
		Uid: uid, ResourceId: resourceID, Generation: 1, Spec: &clusterservicev1.ClusterSpec{Name: "Alpha", Location: "westus3"},
		Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, ClusterId: clusterID, ProvisionShard: "mgmt-1",
			BaseDomainPrefix: "alpha", ApiUrl: "https://api.alpha.example.com:6443", ActiveVersions: []string{"4.20.8"}},
	}}
	for i, life := range []string{firstUID, lastUID} {
		created := time.Date(2026, 3, 14+i, 15, 9, 26, 0, time.UTC)
		h.fleet.clusters = append(h.fleet.clusters, &clusterservicev1.Cluster{Uid: life, ResourceId: goneID, Spec: &clusterservicev1.ClusterSpec{Name: "gone"},
			CreateTime: timestamppb.New(created), DeleteTime: timestamppb.New(created.Add(time.Hour)),
			Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED, Deletion: &clusterservicev1.Deletion{}}})
	}
	h.fleet.nodePools = []*clusterservicev1.NodePool{{Uid: "pool", ClusterUid: uid}, {
		Uid: poolUID, ClusterUid: uid, ResourceId: resourceID + "/nodePools/old", DeleteTime: timestamppb.Now(), Spec: &clusterservicev1.NodePoolSpec{Name: "old"},
		Status: &clusterservicev1.NodePoolStatus{Phase: clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETING, Deletion: &clusterservicev1.Deletion{
			Steps: []*clusterservicev1.DeletionStep{{Name: "node-pool/old", State: clusterservicev1.DeletionStepState_DELETION_STEP_STATE_RUNNING, Stuck: true}}}},
	}}
	h.fleet.credentials = []*clusterservicev1.BreakGlassCredential{{Uid: "credential", ClusterUid: uid,
		Spec: &clusterservicev1.BreakGlassCredentialSpec{CertificateSigningRequest: secret}, Status: &clusterservicev1.BreakGlassCredentialStatus{Certificate: secret}},
		{Uid: "sre", ClusterUid: uid, Spec: &clusterservicev1.BreakGlassCredentialSpec{Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE},
			Status: &clusterservicev1.BreakGlassCredentialStatus{Certificate: "public"}}}
	h.fleet.works = []*clusterservicev1.Work{{Id: "bundle", ClusterUid: uid, Name: clusterID}}
	h.works.bundles = []maestro.Bundle{
		{ID: "bundle", ConsumerName: "mgmt-1", Manifests: []json.RawMessage{json.RawMessage(`{"kind":"Secret","data":{"key":"` + secret + `"}}`)}, Status: json.RawMessage(`{"conditions":[]}`)},
		{ID: "of-another"},
	}
}

// get requests a path as an engineer and decodes a successful response into into, which may be nil.
func (h *harness) get(t *testing.T, engineer, path string, into any) (int, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+adminv1.Root+path, nil))(t)
	if engineer != "" {
		request.Header.Set("Authorization", "Bearer "+engineer)
	}
	response := must.Get(h.client.Do(request))(t)
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	if into != nil && response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(content, into); err != nil {
			t.Fatalf("%v: %s", err, content)
		}
	}
	return response.StatusCode, string(content)
}

// read requests a path as a reader and returns the decoded response, which must be successful, with its body.
func read[T any](t *testing.T, h *harness, path string) (decoded T, body string) {
	t.Helper()
	status, body := h.get(t, "reader", path, &decoded)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, status, body)
	}
	return decoded, body
}

// TestMalformedBundlesAreNamed checks that the lists and the dump name the malformed bundles beside the others.
func TestMalformedBundlesAreNamed(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	h.works.bundles, h.works.ignored = []maestro.Bundle{{ID: "orphan"}}, wire.Ignored{Count: 1, Reasons: []string{"items[1]"}}
	if orphans, body := read[adminv1.OrphanList](t, h, "/orphans"); len(orphans.Items) != 1 || orphans.Ignored.Count != 1 {
		t.Errorf("orphans: %s", body)
	}
	if works, body := read[adminv1.BundleList](t, h, "/clusters/"+uid+"/works"); works.Ignored.Count != 1 {
		t.Errorf("works: %s", body)
	}
	if dumped, body := read[adminv1.Dump](t, h, "/clusters/"+uid+"/dump"); dumped.Maestro == nil || dumped.Maestro.Ignored.Count != 1 {
		t.Errorf("dump: %s", body)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	cases := map[string]struct {
		reason, text string
		want         []string
	}{
		"resource id":            {"in any casing", strings.ToUpper(resourceID), []string{uid}},
		"name":                   {"in any casing", "alpha", []string{uid}},
		"uid":                    {"of the incarnation", uid, []string{uid}},
		"cluster id":             {"as below ARM", clusterID, []string{uid}},
		"namespace":              {"of the HostedCluster", "ocm-local-" + clusterID, []string{uid}},
		"control plane":          {"and of its control plane", "ocm-local-" + clusterID + "-alpha", []string{uid}},
		"work":                   {"and the name of a work", clusterID + "-00-namespaces", []string{uid}},
		"API URL":                {"as a kubeconfig has it", "https://api.alpha.example.com:6443/", []string{uid}},
		"API host":               {"without its port", "API.alpha.example.com", []string{uid}},
		"subscription":           {"all of a subscription, in order of resource id", subscription, []string{uid, earlyUID}},
		"resource group":         {"all of it", "/subscriptions/" + subscription + "/resourcegroups/GROUP", []string{uid, earlyUID}},
		"another group":          {"with a name that begins alike", "/subscriptions/" + subscription + "/resourceGroups/Grou", nil},
		"subscription's id":      {"as ARM writes it", "/subscriptions/" + subscription + "/", []string{uid, earlyUID}},
		"node pool":              {"is its cluster's", resourceID + "/nodePools/np", []string{uid}},
		"base domain prefix":     {"of its host names", "alpha", []string{uid}},
		"base domain":            {"of the cluster", "aro.alpha.example.com", []string{uid}},
		"address":                {"may be that of many", "127.0.0.1", nil},
		"early":                  {"what has not reached the fleet is in ARM", "early", []string{earlyUID}},
		"early by uid":           {"by uid too", earlyUID, []string{earlyUID}},
		"early by resource id":   {"and by resource id", earlyID, []string{earlyUID}},
		"former lives":           {"what was deleted is remembered", "gone", []string{firstUID, lastUID}},
		"former lives by id":     {"by resource id too", goneID, []string{firstUID, lastUID}},
		"nothing":                {"what nobody has", "beta", nil},
		"a part":                 {"a part of a name is no name", "alph", nil},
		"no such cluster id":     {"an id that nobody has", strings.Repeat("0", 32), nil},
		"host of another's port": {"another port is another cluster", "api.alpha.example.com:6444", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h.fleet.lists = nil
			list, _ := read[adminv1.ClusterList](t, h, "/clusters?q="+url.QueryEscape(tc.text))
			var got []string
			for _, c := range list.Items {
				got = append(got, c.UID)
			}
			if strings.Join(got, " ") != strings.Join(tc.want, " ") {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
			// The fleet is searched by an index, and once more for deletion records if nothing else matches.
			if len(h.fleet.lists) == 0 && len(tc.want) > 0 && name != "uid" {
				t.Errorf("%s: the fleet was not searched", tc.reason)
			}
			for _, asked := range h.fleet.lists {
				asked.PageSize, asked.Phases = 0, nil
				if proto.Size(asked) == 0 || len(h.fleet.lists) > 4 {
					t.Errorf("%s: the fleet was asked %v", tc.reason, h.fleet.lists)
				}
			}
		})
	}
}

func TestDumpShowsEveryLayerAndNoSecret(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	dump, body := read[adminv1.Dump](t, h, "/clusters/"+url.PathEscape(resourceID)+"/dump")
	if strings.Contains(body, secret) {
		t.Errorf("the dump shows a secret: %s", body)
	}
	switch {
	case len(dump.Unavailable) > 0:
		t.Errorf("unavailable: %v", dump.Unavailable)
	case dump.ARM.Cluster == nil || dump.ARM.Cluster.UID != uid || len(dump.ARM.NodePools) != 1 || len(dump.ARM.Operations) != 1:
		t.Errorf("ARM: %+v", dump.ARM)
	case dump.ClusterService.Cluster.Of.GetStatus().GetProvisionShard() != "mgmt-1" || len(dump.ClusterService.NodePools) != 2 ||
		len(dump.ClusterService.Credentials) != 2 || len(dump.ClusterService.Works) != 1:
		t.Errorf("Cluster Service: %+v", dump.ClusterService)
	case len(dump.Maestro.Bundles) != 1 || dump.Maestro.Bundles[0].Name != clusterID || !strings.Contains(string(dump.Maestro.Bundles[0].Manifests[0]), "(removed)"):
		t.Errorf("Maestro: %+v", dump.Maestro)
	}
	h.works.down = true
	if dump, body := read[adminv1.Dump](t, h, "/clusters/alpha/dump"); dump.Unavailable[adminv1.LayerMaestro] == "" || dump.Maestro != nil || dump.ClusterService == nil {
		t.Errorf("a layer that does not answer is named, the others are shown: %s", body)
	}
	if dump, body := read[adminv1.Dump](t, h, "/clusters/early/dump"); dump.ARM.Cluster == nil || dump.ClusterService.Cluster != nil {
		t.Errorf("a cluster that has not reached the fleet: %s", body)
	}
}

// TestDumpReadsTheFleetConcurrently checks that all lists are requested before any of them is returned.
func TestDumpReadsTheFleetConcurrently(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	lists := []string{"ListNodePools", "ListExternalAuths", "ListBreakGlassCredentials", "ListBreakGlassRevocations", "ListUpgrades", "ListProvisionShards"}
	var arrived sync.WaitGroup
	arrived.Add(len(lists))
	all := make(chan struct{})
	go func() { arrived.Wait(); close(all) }()
	h.fleet.asked = func(ctx context.Context, method string) {
		if slices.Contains(lists, method) {
			arrived.Done()
			select {
			case <-all:
			case <-ctx.Done():
			}
		}
	}
	if dump, body := read[adminv1.Dump](t, h, "/clusters/"+uid+"/dump"); dump.ClusterService == nil {
		t.Error(body)
	}
}

func TestLastIncarnationIsSelected(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	for _, text := range []string{"gone", url.PathEscape(goneID)} {
		if shown, body := read[adminv1.ClusterDeletion](t, h, "/clusters/"+text+"/deletion"); shown.Cluster.UID != lastUID || len(shown.Items) != 1 {
			t.Errorf("%s: %s", text, body)
		}
	}
}

// TestDeletionHasTheStepsOfAllLayers checks that a cluster has the deletions of its children, and its own once it is deleted, with
// the steps in ARM around those of Cluster Service.
func TestDeletionHasTheStepsOfAllLayers(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	shown, body := read[adminv1.ClusterDeletion](t, h, "/clusters/alpha/deletion")
	if len(shown.Items) != 1 || shown.Items[0].Kind != "nodePool" {
		t.Fatal(body)
	}
	var steps []string
	for _, s := range shown.Items[0].Deletion.Of.GetSteps() {
		steps = append(steps, s.GetName())
	}
	if got, want := strings.Join(steps, " "), "node-pool/old/fleet-accepted node-pool/old node-pool/old/fleet-deleted node-pool/old/documents-removed"; got != want {
		t.Errorf("steps %s, want %s", got, want)
	}
	key := must.Get(database.ResourceKey(resourceID))(t)
	item := must.Get(h.db.Clusters().Get(t.Context(), key))(t)
	operation := database.OperationDocument{OperationID: "goes", Request: database.DeleteRequest, ResourceID: resourceID, UID: uid, Status: hub.Deleting, StartTime: time.Now().Add(-time.Hour)}
	note := operation.DeletionNote("fleet-accepted")
	note.Attempts, note.LastError = 60, "it is unavailable"
	must.Do(t, h.db.BeginClusterDeletion(t.Context(), item, operation))
	shown, body = read[adminv1.ClusterDeletion](t, h, "/clusters/alpha/deletion")
	if len(shown.Items) != 1 || shown.Items[0].Kind != "cluster" || shown.Items[0].OperationID != "goes" || shown.Items[0].Over {
		t.Fatal(body)
	}
	accepted := slices.IndexFunc(shown.Items[0].Deletion.Of.GetSteps(), func(s *clusterservicev1.DeletionStep) bool { return s.GetName() == deletion.StepFleetAccepted })
	if accepted < 0 {
		t.Fatalf("the deletion has no step %s: %s", deletion.StepFleetAccepted, body)
	}
	if s := shown.Items[0].Deletion.Of.GetSteps()[accepted]; !s.GetStuck() || s.GetAttempts() != 60 || s.GetLastError() != "it is unavailable" {
		t.Errorf("the stuck step: %v", s)
	}
	// The list has the deletion although Cluster Service has not accepted it, and none for the child that it includes.
	list, body := read[adminv1.DeletionList](t, h, "/deletions?stuck=true")
	if len(list.Items) != 1 || list.Items[0].UID != uid || list.Items[0].OperationID != "goes" || len(list.Unavailable) > 0 {
		t.Fatal(body)
	}
	h.fleet.clusters[0].DeleteTime = timestamppb.Now()
	h.fleet.clusters[0].Status.Phase = clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETING
	h.fleet.clusters[0].Status.Deletion = &clusterservicev1.Deletion{Steps: []*clusterservicev1.DeletionStep{
		{Name: "namespaces", Kind: "namespaces", State: clusterservicev1.DeletionStepState_DELETION_STEP_STATE_RUNNING}}}
	list, body = read[adminv1.DeletionList](t, h, "/deletions")
	if len(list.Items) != 1 {
		t.Fatal(body)
	}
	running := map[string]bool{}
	for _, s := range deletion.BlockingSteps(list.Items[0].Deletion.Of.GetSteps()) {
		running[s.GetName()] = true
	}
	if want := map[string]bool{"children-marked": true, "namespaces": true}; !maps.Equal(running, want) {
		t.Errorf("it waits for %v, want %v", running, want)
	}
}

func TestRejections(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	cases := map[string]struct {
		reason, engineer, path string
		status                 int
		code                   string
	}{
		"nobody":         {"a token is needed", "", "/clusters", 401, "Unauthorized"},
		"guest":          {"and a group that gives a role", "guest", "/clusters", 403, "Forbidden"},
		"unknown":        {"there is no such cluster", "reader", "/clusters/beta", 404, "NotFound"},
		"several":        {"a path means one cluster", "reader", "/clusters/" + subscription + "/dump", 409, "Conflict"},
		"no resource id": {"half a resource id", "reader", "/clusters?q=%2Fsubscriptions", 400, "InvalidParameter"},
		"parameter":      {"a parameter is one that there is", "reader", "/clusters?colour=red", 400, "InvalidParameter"},
		"page size":      {"a page has a size", "reader", "/clusters?pageSize=501", 400, "InvalidParameter"},
		"flag":           {"a flag is true or false", "reader", "/deletions?stuck=yes", 400, "InvalidParameter"},
		"active":         {"wherever it stands", "reader", "/elevations?active=yes", 400, "InvalidParameter"},
		"follow":         {"node pools follow in ways that there are", "reader", "/clusters/alpha/upgrade-plan?nodePools=some", 400, "InvalidParameter"},
		"no path":        {"there is no such path", "reader", "/nothing", 404, "NotFound"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, body := h.get(t, tc.engineer, tc.path, nil)
			var failure adminv1.Failure
			must.Do(t, json.Unmarshal([]byte(body), &failure))
			if status != tc.status || failure.Error.Code != tc.code || failure.Error.Message == "" || failure.Error.RequestID == "" {
				t.Errorf("%s: %d %s", tc.reason, status, body)
			}
		})
	}
}

// TestWaitingClustersAreListed checks the request and the response of the list of clusters that are not in their desired state, and
// the combinations of parameters that are rejected.
func TestWaitingClustersAreListed(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	began := time.Now()
	list, _ := read[adminv1.ClusterList](t, h, "/clusters?notReady=true&olderThan=10m&concern=node-pool,control-plane/Waiting&shard=mgmt-1&version=4.19&pageSize=7&pageToken=t")
	asked := h.fleet.concerns[0]
	if at := asked.GetSinceBefore().AsTime(); at.Before(began.Add(-10*time.Minute)) || at.After(time.Now().Add(-10*time.Minute)) {
		t.Errorf("since before %s", at)
	}
	if !slices.Equal(asked.GetConcerns(), []string{"node-pool", "control-plane/Waiting"}) || asked.GetProvisionShard() != "mgmt-1" || asked.GetVersion() != "4.19" || asked.GetPageSize() != 7 || asked.GetPageToken() != "t" {
		t.Errorf("asked %v", asked)
	}
	if got := list.Items[0]; got.UID != uid || got.Name != "Alpha" || got.SubscriptionID != subscription || got.ProvisionShard != "mgmt-1" || got.Concern.State != "WaitingForNodes" ||
		got.Concern.SubjectID != resourceID+"/nodePools/np" || list.NextPageToken != "next" {
		t.Errorf("%+v", got)
	}
	for query, target := range map[string]string{
		"olderThan=10m": "olderThan", "concern=azure": "concern", "shard=mgmt-1&q=a": "shard", "phase=Ready&subscription=a": "phase", "phase=Asleep": "phase", "version=4.19&q=a": "version", "version=4.19&subscription=a": "version", "phase=unspecified": "phase", "notReady=true&phase=Ready": "phase", "notReady=yes": "notReady", "notReady=true&q=a": "q",
		"notReady=true&subscription=a": "subscription", "notReady=true&olderThan=old": "olderThan", "notReady=true&olderThan=-1m": "olderThan",
	} {
		if status, body := h.get(t, "reader", "/clusters?"+query, nil); status != http.StatusBadRequest || !strings.Contains(body, `"target":"`+target+`"`) {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}
