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
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

const explainedID = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"

// waitingDump is of a cluster that waits for room.
func waitingDump() *adminv1.Dump {
	taken := time.Date(2026, 11, 21, 3, 16, 7, 0, time.UTC)
	began := taken.Add(-25 * time.Minute)
	cluster := &csv1.Cluster{Uid: "5d0e8f0c-0c3a-4f4a-8f62-5b8c1f1f9a10", ResourceId: explainedID, Generation: 1, Status: &csv1.ClusterStatus{
		Phase:    csv1.ClusterPhase_CLUSTER_PHASE_PENDING,
		Progress: []*csv1.LayerProgress{{Layer: "placement", State: "WaitingForCapacity", Message: "Waiting for a provision shard with room.", Since: timestamppb.New(began)}}}}
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

// newAdmin is an admin that knows the cluster demo, and two called twice. Requests counts those for what is not a token.
func newAdmin(t *testing.T) (client *adminclient.Client, requests *int) {
	t.Helper()
	requests = new(int)
	dump, err := json.Marshal(waitingDump())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			reply(w, http.StatusOK, map[string]any{"access_token": "token", "expires_in": 3600})
			return
		}
		*requests++
		switch r.URL.Path {
		case adminv1.Root + "/clusters/demo/dump":
			_, _ = w.Write(dump)
		case adminv1.Root + "/clusters/twice/dump":
			problem(w, http.StatusConflict, "Conflict", "2 clusters are meant")
		case adminv1.Root + "/clusters":
			reply(w, http.StatusOK, adminv1.ClusterList{Items: []adminv1.Cluster{{ResourceID: "/a/twice"}, {ResourceID: "/b/twice"}}})
		case adminv1.Root + "/clusters/ill/dump":
			problem(w, http.StatusServiceUnavailable, "ServiceUnavailable", "Cosmos DB does not answer")
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
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	client, err = adminclient.New(adminclient.Options{Endpoint: server.URL, Authority: server.URL, CAFile: filepath.Join(dir, "ca.crt"),
		CredentialsFile: filepath.Join(dir, "engineers.json"), Audience: "api://admin"})
	if err != nil {
		t.Fatal(err)
	}
	return client, requests
}

func TestExplain(t *testing.T) {
	client, requests := newAdmin(t)
	tests := map[string]struct {
		reason, name, output string
		// want are parts of the answer, or of the error.
		want, wantError []string
	}{
		"text":      {"what it waits for, and until when the operation has time", "demo", "text", []string{"a provision shard with room for 25 minutes", "mgmt-1 holds 100 of 100 clusters", "An SRE has to act", "fails at 03:51:07 UTC", "maestro could not be asked: connection refused."}, nil},
		"json":      {"for programs", "demo", "json", []string{`"who": "sre"`, `"state": "WaitingForCapacity"`, `"since": "2026-11-21T02:51:07Z"`}, nil},
		"unknown":   {"an error", "dmeo", "text", nil, []string{`No cluster of this region is called "dmeo".`}},
		"ambiguous": {"an error that lists them", "twice", "text", nil, []string{"2 clusters of this region", "/a/twice", "/b/twice"}},
		"ill":       {"admin's own trouble", "ill", "text", nil, []string{"Cosmos DB does not answer"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			e := &environment{out: &out}
			*requests = 0
			err := e.answer(t.Context(), client, tc.name, tc.output)
			if (err != nil) != (tc.wantError != nil) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, part := range tc.want {
				if !strings.Contains(text, part) {
					t.Errorf("%s: %q is missing in:\n%s", tc.reason, part, out.String())
				}
			}
			for _, part := range tc.wantError {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is missing in: %v", tc.reason, part, err)
				}
			}
			if tc.name == "demo" && *requests != 1 {
				t.Errorf("%d requests for one answer", *requests)
			}
		})
	}
}

func TestMustGather(t *testing.T) {
	client, _ := newAdmin(t)
	logs, file := t.TempDir(), filepath.Join(t.TempDir(), "all.tar.gz")
	if err := os.WriteFile(filepath.Join(logs, "frontend.log"), []byte("{\"msg\":\"a\",\"correlation_id\":\"A-Correlation\"}\n{\"msg\":\"b\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, map[string]any{"process": "frontend", "path": r.URL.Path})
	}))
	defer ops.Close()
	var out, errOut bytes.Buffer
	e := &environment{out: &out, err: &errOut}
	from := place{logDir: logs, Endpoints: local.Endpoints{Ops: map[string]string{"frontend": strings.TrimPrefix(ops.URL, "http://"), "backend": "127.0.0.1:1"}}}
	if err := e.gather(t.Context(), client, "demo", file, from); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive: %v, %v; want it readable by its owner only", info, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*.part")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	found := map[string]string{}
	opened, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	plain, err := gzip.NewReader(opened)
	if err != nil {
		t.Fatal(err)
	}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = string(content)
	}
	const folder = "must-gather-demo-20261121T031607Z/"
	for name, part := range map[string]string{
		"explanation.txt": "a provision shard with room", "cluster.yaml": "name: demo", "arm/cluster.yaml": "provisioningState: Provisioning", "arm/operations.yaml": "an-operation",
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
	for _, part := range []string{"not there: maestro: connection refused", "not there: management cluster: the cluster has no place yet", "not there: versions: backend: "} {
		if !strings.Contains(errOut.String(), part) {
			t.Errorf("%q is not said:\n%s", part, errOut.String())
		}
	}
	if !strings.Contains(out.String(), file+": 10 files, ") && !strings.Contains(out.String(), " files, ") {
		t.Errorf("said %q", out.String())
	}
}
