package command

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

const explainedID = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"

// waitingExplanation explains a cluster that waits for capacity.
func waitingExplanation() adminv1.Explanation {
	taken := time.Date(2026, 11, 21, 3, 16, 7, 0, time.UTC)
	began := taken.Add(-25 * time.Minute)
	return adminv1.Explanation{Time: taken, Cluster: adminv1.Cluster{ResourceID: explainedID}, Items: []adminv1.ExplanationItem{{
		Code: adminv1.ExplanationWaiting, Subject: "cluster demo", Layer: "placement", State: "WaitingForCapacity", Since: began, Responsible: adminv1.PartySRE,
		Summary:  adminv1.Sentence{Code: adminv1.SentenceSummary, Text: "Cluster demo waits for capacity."},
		Evidence: []adminv1.Sentence{{Code: adminv1.SentenceShardCapacity, Text: "mgmt-1 holds 100 of 100 clusters."}},
		Actions:  []adminv1.Sentence{{Code: adminv1.SentenceAction, Text: "Action for an SRE: add a shard."}}, Command: "hcpctl shard explain demo",
	}}, Partial: true, Unavailable: map[string]string{adminv1.LayerARM: "connection refused"}}
}

// waitingDump returns the dump of a cluster that waits for capacity.
func waitingDump() *adminv1.Dump {
	taken := time.Date(2026, 11, 21, 3, 16, 7, 0, time.UTC)
	began := taken.Add(-25 * time.Minute)
	cluster := &csv1.Cluster{Uid: "5d0e8f0c-0c3a-4f4a-8f62-5b8c1f1f9a10", ResourceId: explainedID, Generation: 1, Status: &csv1.ClusterStatus{
		Phase:    csv1.ClusterPhase_CLUSTER_PHASE_PENDING,
		Progress: []*csv1.LayerProgress{{Layer: "placement", State: "WaitingForCapacity", Message: "Waiting for a provision shard with a free place.", Since: timestamppb.New(began)}}}}
	return &adminv1.Dump{
		TakenAt: taken, Cluster: adminv1.Cluster{UID: cluster.Uid, ResourceID: explainedID, Name: "demo", ClusterID: "1imksvu2ph5jb1k9d7q3o6m8c4r2t0ae"},
		ARM: &adminv1.ARMLayer{
			Cluster: &adminv1.ARMCluster{ARMState: adminv1.ARMState{UID: cluster.Uid, Generation: 1, ProvisioningState: hub.Provisioning, ActiveOperationID: "an-operation"},
				Resource: hub.Cluster{Resource: hub.Resource{ID: explainedID, Name: "demo"}}},
			Operations: []adminv1.ARMOperation{{OperationID: "an-operation", Request: "Create", ResourceID: explainedID, Status: hub.Provisioning, StartTime: began, CorrelationID: "a-correlation"}},
		},
		ClusterService: &adminv1.FleetLayer{Cluster: &adminv1.FleetCluster{Of: cluster},
			ProvisionShards: adminv1.Messages([]*csv1.ProvisionShard{{Name: "mgmt-1", Capacity: 100, Clusters: 100}})},
		Unavailable: map[string]string{adminv1.LayerMaestro: "connection refused"},
	}
}

// newAdmin returns a client of an admin that has the cluster demo, and two clusters with the name twice. Requests counts all
// requests but those for tokens.
func newAdmin(t *testing.T) (client *adminclient.Client, requests *int) {
	t.Helper()
	requests = new(int)
	dump := must.Get(json.Marshal(waitingDump()))(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			reply(w, http.StatusOK, map[string]any{"access_token": "token", "expires_in": 3600})
			return
		}
		*requests++
		switch r.URL.Path {
		case adminv1.Root + "/clusters/demo/dump":
			_, _ = w.Write(dump)
		case adminv1.Root + "/clusters/demo/explanation", adminv1.Root + "/clusters/" + waitingDump().Cluster.UID + "/explanation":
			reply(w, http.StatusOK, waitingExplanation())
		case adminv1.Root + "/clusters/twice/dump", adminv1.Root + "/clusters/twice/explanation":
			problem(w, http.StatusConflict, "Conflict", "2 clusters match: /a/twice, /b/twice")
		case adminv1.Root + "/explanation":
			reply(w, http.StatusOK, adminv1.RegionExplanation{Items: waitingExplanation().Items, Components: []adminv1.Component{{Name: "backend", State: adminv1.ComponentReady}}})
		case adminv1.Root + "/clusters":
			reply(w, http.StatusOK, waitingClusters(r.URL.Query()))
		case adminv1.Root + "/clusters/demo/journal":
			reply(w, http.StatusOK, adminv1.Journal{Health: adminv1.Health{API: adminv1.HealthUnknown, Reason: adminv1.HealthMonitorAway, Detail: "monitor is away"}, Items: []adminv1.JournalEntry{
				{Event: adminv1.JournalConcernBegan, Kind: "etcd_fails", Fault: "service", Evidence: "status 500"},
				{Event: adminv1.JournalAPI, From: adminv1.HealthAvailable, To: adminv1.HealthUnavailable}, {Event: adminv1.JournalAPI, To: adminv1.HealthAvailable}}})
		case adminv1.Root + "/clusters/unavailable/explanation":
			problem(w, http.StatusServiceUnavailable, "ServiceUnavailable", "Cosmos DB does not respond")
		default:
			problem(w, http.StatusNotFound, "NotFound", "No cluster")
		}
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"ca.crt":         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		"engineers.json": []byte(`[{"tenantId": "t", "clientId": "c", "clientSecret": "s"}]`),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	client = must.Get(adminclient.New(adminclient.Options{Endpoint: server.URL, Authority: server.URL, CAFile: filepath.Join(dir, "ca.crt"),
		CredentialsFile: filepath.Join(dir, "engineers.json"), Audience: "api://admin"}))(t)
	return client, requests
}

// waitingClusters returns a page of clusters of the region: two pages of one if they wait, as requested.
func waitingClusters(query url.Values) adminv1.ClusterList {
	c := adminv1.Cluster{Name: "demo", ResourceID: explainedID, Verdict: "Ready" + query.Get("phase"), ProvisionShard: "mgmt-1" + query.Get("shard"), Version: query.Get("version")}
	if query.Get("notReady") != "true" {
		return adminv1.ClusterList{Items: []adminv1.Cluster{c}}
	}
	c.Concern = &adminv1.ClusterConcern{SubjectID: explainedID + "/nodePools/" + query.Get("olderThan"), Layer: query.Get("concern"), State: query.Get("shard"), Since: time.Now().Add(-time.Hour)}
	next := ""
	if query.Get("pageToken") == "" {
		next = "second"
	}
	return adminv1.ClusterList{Items: []adminv1.Cluster{c}, NextPageToken: next}
}

// TestRegionCommands runs the commands that explain the region and list its clusters.
func TestRegionCommands(t *testing.T) {
	client, _ := newAdmin(t)
	for line, want := range map[string]string{
		"explain":               "Cluster demo waits for capacity.",
		"explain -o json":       `"name": "backend"`,
		"cluster list --region": "mgmt-1",
		"cluster list --region --shard -other --version 4.19 --phase Failed --phase Installing": "ReadyFailed,Installing  4.19     mgmt-1-other",
		"cluster list --region --not-ready --version 4.19.3":                                    "4.19.3",
		"cluster journal demo":         "API: unknown (monitor_away): monitor is away",
		"cluster journal demo -o json": `"kind": "etcd_fails"`,
		"cluster list --region --not-ready --older-than 10m --concern a --concern b/c --shard mgmt-1": "nodePools/10m0s",
		"cluster list --region --not-ready --limit 1":                                                 "more such clusters",
		"cluster list --region --not-ready -o json":                                                   `"concern"`,
	} {
		var out, errOut bytes.Buffer
		c := NewFor(&out, &errOut, func(adminclient.Options) (*adminclient.Client, error) { return client, nil })
		c.SetArgs(strings.Fields(line))
		if err := c.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String()+errOut.String(), want) {
			t.Errorf("hcpctl %s: %v, want %q:\n%s%s", line, err, want, &out, &errOut)
		}
		if strings.Contains(line, "older-than") && (strings.Count(out.String(), "demo ") != 2 || !strings.Contains(out.String(), "a,b/c/mgmt-1") || !strings.Contains(out.String(), "1h0m0s")) {
			t.Errorf("hcpctl %s:\n%s", line, &out)
		}
	}
	for line, want := range map[string]string{
		"cluster list --not-ready":                           "--not-ready requires --region",
		"cluster list --region --older-than 1m":              "--older-than requires --not-ready",
		"cluster list --region --concern azure":              "--concern requires --not-ready",
		"cluster list --shard mgmt-1":                        "--shard requires --region",
		"cluster list --version 4.19":                        "--version requires --region",
		"cluster list --region --not-ready --phase Failed":   "exclude each other",
		"cluster list --region --all":                        "exclude each other",
		"cluster list --region -o xml":                       "--output",
		"cluster list --region --limit 0":                    "--limit",
		"cluster list --region --not-ready --older-than -1m": "negative",
	} {
		c := NewFor(io.Discard, io.Discard, func(adminclient.Options) (*adminclient.Client, error) { return client, nil })
		c.SetArgs(strings.Fields(line))
		if err := c.ExecuteContext(t.Context()); ExitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("hcpctl %s: %v, want %q", line, err, want)
		}
	}
}

func TestExplain(t *testing.T) {
	client, requests := newAdmin(t)
	tests := map[string]struct {
		reason, name, output string
		// want are parts of the output, or of the error.
		want []string
		code int
	}{
		"text": {"the sentences, the command and the missing layer", "demo", "text", []string{"Cluster demo waits for capacity.", "mgmt-1 holds 100 of 100 clusters.",
			"Action for an SRE: add a shard.", "    hcpctl shard explain demo\n", "Cosmos DB could not be read: connection refused."}, 0},
		"json":        {"for programs", "demo", "json", []string{`"responsible": "sre"`, `"state": "WaitingForCapacity"`, `"since": "2026-11-21T02:51:07Z"`, `"partial": true`}, 0},
		"unknown":     {"a cluster that does not exist", "dmeo", "text", []string{"No cluster"}, exitNotFound},
		"ambiguous":   {"a name of two clusters", "twice", "text", []string{"/a/twice", "/b/twice"}, exitFailed},
		"unavailable": {"admin cannot read its store", "unavailable", "text", []string{"Cosmos DB does not respond"}, exitUnavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			e := &environment{out: &out}
			*requests = 0
			err := e.showExplanation(t.Context(), client, tc.name, tc.output)
			if ExitCode(err) != tc.code {
				t.Fatalf("%s: exit code %d, want %d: %v", tc.reason, ExitCode(err), tc.code, err)
			}
			text := out.String()
			if err != nil {
				text = err.Error()
			}
			for _, part := range tc.want {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %q is missing in:\n%s", tc.reason, part, text)
				}
			}
			if *requests != 1 {
				t.Errorf("%d requests for one explanation", *requests)
			}
		})
	}
}

func TestMustGather(t *testing.T) {
	client, _ := newAdmin(t)
	logs, file := t.TempDir(), filepath.Join(t.TempDir(), "all.tar.gz")
	must.Do(t, os.WriteFile(filepath.Join(logs, "frontend.log"), []byte("{\"msg\":\"a\",\"correlation_id\":\"A-Correlation\"}\n{\"msg\":\"b\"}\n"), 0o600))
	ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]any{"process": "frontend", "path": r.URL.Path})
	}))
	defer ops.Close()
	var out, errOut bytes.Buffer
	e := &environment{out: &out, err: &errOut}
	from := gatherSource{logDir: logs, Endpoints: local.Endpoints{Ops: map[string]string{"frontend": strings.TrimPrefix(ops.URL, "http://"), "backend": "127.0.0.1:1"}}}
	must.Do(t, e.gather(t.Context(), client, "demo", file, from))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive: %v, %v; want it readable by its owner only", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*.part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	found := map[string]string{}
	opened := must.Get(os.Open(file))(t)
	defer func() { _ = opened.Close() }()
	plain := must.Get(gzip.NewReader(opened))(t)
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(reader))(t)
		found[header.Name] = string(content)
	}
	const folder = "must-gather-demo-20261121T031607Z/"
	for name, part := range map[string]string{
		"explanation.txt": "Cluster demo waits for capacity.", "cluster.yaml": "name: demo", "arm/cluster.yaml": "provisioningState: Provisioning", "arm/operations.yaml": "an-operation",
		"cluster-service/cluster.yaml": "WaitingForCapacity", "cluster-service/provisionShards.yaml": "mgmt-1", "logs/frontend.log": `"msg":"a"`, "versions.yaml": "process: frontend",
		"index.json": "connection refused",
	} {
		if !strings.Contains(found[folder+name], part) {
			t.Errorf("%s does not hold %q: %q", name, part, found[folder+name])
		}
	}
	if strings.Contains(found[folder+"logs/frontend.log"], `"b"`) {
		t.Error("a line that does not name the cluster is inside")
	}
	for _, part := range []string{"warning: maestro is missing: connection refused", "warning: management cluster is missing: ", "warning: versions is missing: backend: "} {
		if !strings.Contains(errOut.String(), part) {
			t.Errorf("%q is not said:\n%s", part, errOut.String())
		}
	}
	if !strings.Contains(out.String(), file+": 10 files, ") && !strings.Contains(out.String(), " files, ") {
		t.Errorf("said %q", out.String())
	}
}
