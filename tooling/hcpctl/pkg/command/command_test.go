package command

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	armwire "github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var update = flag.Bool("update", false, "write the golden files again")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it again):\n%s", name, diff)
	}
}

// azure simulates ARM: it issues tokens, stores resources, and completes operations after a few polls.
type azure struct {
	*httptest.Server
	dir string

	mu        sync.Mutex
	resources map[string]map[string]any
	polls     map[string]int
	// results of actions, by their paths.
	results map[string]any
	// versions counts the writes of each resource. Its ETag contains them.
	versions map[string]int
	// patches are the bodies of accepted PATCH requests.
	patches []map[string]any
	// before is called before each request; may be nil.
	before func(r *http.Request)
}

func newAzure(t *testing.T) *azure {
	t.Helper()
	a := &azure{dir: t.TempDir(), resources: map[string]map[string]any{}, polls: map[string]int{}, results: map[string]any{}, versions: map[string]int{}}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	for name, data := range map[string][]byte{
		"ca.crt":           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}),
		"credentials.json": []byte(`[{"tenantId": "t", "clientId": "c", "clientSecret": "s"}]`),
	} {
		must.Do(t, os.WriteFile(filepath.Join(a.dir, name), data, 0o600))
	}
	return a
}

func (a *azure) serve(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := strings.ToLower(r.URL.Path)
	if a.before != nil {
		a.before(r)
	}
	switch {
	case strings.HasSuffix(id, "/token"):
		reply(w, http.StatusOK, map[string]any{"access_token": "token", "expires_in": 3600})
	case r.Header.Get("Authorization") != "Bearer token":
		problem(w, http.StatusUnauthorized, "AuthenticationFailed", "no token")
	case strings.HasPrefix(id, "/operations/"):
		a.poll(w, strings.TrimPrefix(id, "/operations"))
	case strings.HasPrefix(id, "/results/"):
		reply(w, http.StatusOK, a.results[strings.TrimPrefix(id, "/results")])
	case r.Method == http.MethodPost && a.resources[id[:strings.LastIndexByte(id, '/')]] == nil:
		problem(w, http.StatusNotFound, "ResourceNotFound", "The Resource was not found.")
	case r.Method == http.MethodPost:
		a.act(w, r, id)
	case strings.HasSuffix(id, "/hcpopenshiftversions"):
		reply(w, http.StatusOK, map[string]any{"value": []any{map[string]any{
			"name": "4.21.3", "properties": map[string]any{"channelGroup": "stable", "enabled": true, "endOfLifeTimestamp": "2027-06-30T00:00:00Z"},
		}}})
	case r.Method == http.MethodGet && strings.Count(id, "/") == 9 && a.resources[clusterOf(id)] == nil:
		problem(w, http.StatusNotFound, "ResourceNotFound", "The cluster was not found.")
	case strings.HasSuffix(id, "/hcpopenshiftclusters"), strings.HasSuffix(id, "/nodepools"), strings.HasSuffix(id, "/externalauths"):
		values := []any{}
		for _, name := range []string{"a", "b", "workers", "entra"} { // in a stable order
			if resource := a.resources[id+"/"+name]; resource != nil {
				values = append(values, resource)
			}
		}
		reply(w, http.StatusOK, map[string]any{"value": values})
	case !a.meets(r, id):
		problem(w, http.StatusPreconditionFailed, "PreconditionFailed", "The condition of the request does not hold.")
	case r.Method == http.MethodPut && strings.Count(id, "/") > strings.Count(clusterOf(id), "/") && a.resources[clusterOf(id)] == nil:
		problem(w, http.StatusNotFound, "ParentResourceNotFound", "The cluster was not found.")
	case r.Method == http.MethodPut:
		a.put(w, r, id)
	case a.resources[id] == nil && r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case a.resources[id] == nil:
		problem(w, http.StatusNotFound, "ResourceNotFound", "The Resource was not found.")
	case r.Method == http.MethodDelete:
		a.resources[id]["properties"].(map[string]any)["provisioningState"] = "Deleting"
		a.begin(w, id, http.StatusAccepted, nil)
	case r.Method == http.MethodPatch:
		a.patch(w, r, id)
	default:
		w.Header().Set("ETag", a.etag(id))
		reply(w, http.StatusOK, a.resources[id])
	}
}

// clusterOf returns the ID of the cluster of a resource.
func clusterOf(id string) string {
	segments := strings.Split(id, "/")
	return strings.Join(segments[:min(len(segments), 9)], "/")
}

func (a *azure) etag(id string) string { return fmt.Sprintf(`"%d"`, a.versions[id]) }

// meets reports whether the conditions of a request hold.
func (a *azure) meets(r *http.Request, id string) bool {
	exists := a.resources[id] != nil
	match := r.Header.Get("If-Match")
	return (match == "" || exists && match == a.etag(id)) && (r.Header.Get("If-None-Match") != "*" || !exists)
}

// patch merges a body into a resource, as the frontend does: JSON merge patch, and names of tags have no case.
func (a *azure) patch(w http.ResponseWriter, r *http.Request, id string) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		problem(w, http.StatusBadRequest, "InvalidRequestContent", err.Error())
		return
	}
	stored, _ := a.resources[id]["tags"].(map[string]any)
	tags, _ := body["tags"].(map[string]any)
	for name := range tags {
		if spelling, ok := keyFold(stored, name); ok && spelling != name {
			stored[name] = stored[spelling]
			delete(stored, spelling)
		}
	}
	a.patches = append(a.patches, body)
	a.resources[id] = armwire.MergePatch(a.resources[id], body)
	a.resources[id]["properties"].(map[string]any)["provisioningState"] = "Accepted"
	a.versions[id]++
	a.begin(w, id, http.StatusAccepted, a.resources[id])
}

func (a *azure) put(w http.ResponseWriter, r *http.Request, id string) {
	var resource map[string]any
	data, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(data, &resource); err != nil {
		problem(w, http.StatusBadRequest, "InvalidRequestContent", err.Error())
		return
	}
	if resource["location"] == "mars" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": {"code": "MultipleErrorsOccurred", "message": "There were multiple errors", "details": [
			{"code": "InvalidRequestContent", "target": "location", "message": "Unsupported value: \"mars\""},
			{"code": "InvalidRequestContent", "target": "properties.network.hostPrefix", "message": "Invalid value: 30"}]}}`))
		return
	}
	resource["id"], resource["name"] = r.URL.Path, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	properties, _ := resource["properties"].(map[string]any)
	properties["provisioningState"] = "Accepted"
	a.resources[id] = resource
	a.versions[id]++
	a.begin(w, id, http.StatusCreated, resource)
}

func (a *azure) begin(w http.ResponseWriter, id string, status int, body any) {
	a.polls[id] = 0
	w.Header().Set("Azure-AsyncOperation", a.URL+"/operations"+id)
	if status == http.StatusAccepted {
		w.Header().Set("Location", a.URL+"/operations"+id)
	}
	reply(w, status, body)
}

// poll completes the creation or deletion of a resource in three steps.
func (a *azure) poll(w http.ResponseWriter, id string) {
	a.polls[id]++
	properties, _ := a.resources[id]["properties"].(map[string]any)
	deleting := properties["provisioningState"] == "Deleting"
	available := "False"
	status := "InProgress"
	switch {
	case a.polls[id] < 2:
	case a.resources[id] == nil: // an action's
		status = "Succeeded"
	case deleting:
		delete(a.resources, id)
		status = "Succeeded"
	default:
		properties["provisioningState"], available, status = "Succeeded", "True", "Succeeded"
	}
	if !deleting && a.resources[id] != nil {
		if status != "Succeeded" {
			properties["provisioningState"] = "Provisioning"
		}
		properties["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": "Available", "status": available, "reason": "AsExpected", "message": "the control plane",
		}}}
	}
	reply(w, http.StatusOK, map[string]any{"status": status})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func problem(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, map[string]any{"error": map[string]any{"code": code, "message": message}})
}

// run runs hcpctl against it.
func (a *azure) run(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := New(&stdout, &stderr)
	command.SetArgs(append(args, "--endpoint", a.URL, "--ca-file", filepath.Join(a.dir, "ca.crt"), "--credentials-file", filepath.Join(a.dir, "credentials.json")))
	err = command.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func mustRun(t *testing.T, a *azure, args ...string) (out, progress string) {
	t.Helper()
	out, progress, err := a.run(t, args...)
	if err != nil {
		t.Fatalf("hcpctl %s: %v", strings.Join(args, " "), err)
	}
	return out, progress
}

var durations = regexp.MustCompile(`after [0-9.]+m?s`)

func TestResourceLifecycleThroughARM(t *testing.T) {
	a := newAzure(t)
	_, progress := mustRun(t, a, "cluster", "create", "a", "--tag", "team=x", "--version", "4.21")
	golden(t, "create.txt", durations.ReplaceAllString(progress, "after a while"))
	if out, _ := mustRun(t, a, "cluster", "create", "b", "--no-wait"); out != "operation b\n" {
		t.Errorf("--no-wait printed %q, want the ID of the operation", out)
	}
	mustRun(t, a, "nodepool", "create", "a", "workers", "--replicas", "3")
	mustRun(t, a, "externalauth", "create", "a", "entra", "--issuer", "https://login.example/t", "--audience", "one", "--audience", "two", "--groups-claim", "groups")

	for name, args := range map[string][]string{
		"clusters.txt":   {"cluster", "list"},
		"clusters-all":   {"cluster", "list", "--all", "-o", "json"},
		"cluster.txt":    {"cluster", "get", "a"},
		"cluster.yaml":   {"cluster", "get", "a", "-o", "yaml"},
		"nodepools.txt":  {"nodepool", "list", "a"},
		"auths.txt":      {"externalauth", "list", "a"},
		"auth.yaml":      {"externalauth", "get", "a", "entra", "-o", "yaml"},
		"versions.txt":   {"version", "list"},
		"nodepool.json":  {"nodepool", "get", "a", "workers", "-o", "json"},
		"completion.txt": {"__complete", "cluster", "get", ""},
	} {
		if name == "clusters-all" { // the fake keeps no list of a subscription
			if out, _ := mustRun(t, a, args...); strings.TrimSpace(out) != "[]" {
				t.Errorf("an empty list is %q", out)
			}
			continue
		}
		if name == "completion.txt" {
			// The words to complete come last.
			args = []string{"__complete", "cluster", "get", "--endpoint", a.URL, "--ca-file", filepath.Join(a.dir, "ca.crt"), "--credentials-file", filepath.Join(a.dir, "credentials.json"), ""}
			var out bytes.Buffer
			command := New(&out, io.Discard)
			command.SetArgs(args)
			must.Do(t, command.ExecuteContext(t.Context()))
			golden(t, name, out.String())
			continue
		}
		out, _ := mustRun(t, a, args...)
		golden(t, name, out)
	}

	_, progress = mustRun(t, a, "cluster", "delete", "a")
	if !strings.Contains(progress, "cluster a: Deleting") || !strings.Contains(progress, "done") {
		t.Errorf("progress of the deletion:\n%s", progress)
	}
	if _, _, err := a.run(t, "cluster", "get", "a"); err == nil || err.Error() != "ResourceNotFound: The Resource was not found.\nlist existing ones with `hcpctl cluster list`" || ExitCode(err) != exitNotFound {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestErrorsNameTheProblem(t *testing.T) {
	a := newAzure(t)
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "cluster.yaml")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	tests := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"unknown flag":       {"a misspelt flag must not be ignored", []string{"cluster", "list", "--grup", "x"}, "unknown flag: --grup"},
		"unknown command":    {"nor a command", []string{"cluster", "lst"}, `unknown command "lst"`},
		"output":             {"there are three", []string{"cluster", "list", "-o", "xml"}, `--output: "xml" is not one of table, json, yaml`},
		"missing name":       {"cobra states what is expected", []string{"cluster", "get"}, "accepts 1 arg(s), received 0"},
		"tag":                {"a tag has a value", []string{"cluster", "create", "a", "--tag", "team"}, `invalid tag "team"`},
		"issuer":             {"there is no default", []string{"externalauth", "create", "a", "entra", "--audience", "x"}, "--issuer and --audience are required, or --file"},
		"replicas":           {"scaling to 0 must be meant", []string{"nodepool", "scale", "a", "workers"}, "[replicas max]"},
		"every field error":  {"all that is wrong is said at once", []string{"cluster", "create", "a", "-f", file("location: mars\nproperties: {}\n")}, "location: InvalidRequestContent: Unsupported value: \"mars\"\n  properties.network.hostPrefix"},
		"unknown field":      {"the SDK would leave it out without a word", []string{"cluster", "create", "a", "-f", file("location: westus3\nspec: {}\n")}, `unknown field "spec"`},
		"missing state":      {"it states what to do", []string{"region", "status", "--state-dir", t.TempDir()}, "the region does not run"},
		"unknown platform":   {"the platforms are named", []string{"region", "up", "--state-dir", t.TempDir(), "--on", "moon"}, `--on: "moon" is not one of processes, kubernetes`},
		"other platform":     {"the flag is named", []string{"region", "up", "--state-dir", t.TempDir(), "--on", "kubernetes", "--faults"}, "--faults is for regions of processes"},
		"unknown region key": {"the field is named", []string{"region", "up", "--state-dir", t.TempDir(), "--config", file("fidelty: status\n")}, `unknown field "fidelty"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var err error
			if test.args[0] == "region" {
				command := New(io.Discard, io.Discard)
				command.SetArgs(test.args)
				err = command.ExecuteContext(t.Context())
			} else {
				_, _, err = a.run(t, test.args...)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q: %s", err, test.want, test.reason)
			}
		})
	}
	a.Close()
	began := time.Now()
	if _, _, err := a.run(t, "cluster", "list"); err == nil || !strings.Contains(err.Error(), "is unreachable") {
		t.Errorf("with nobody there, after %s: %v", time.Since(began), err)
	}
}

// TestTemplateUsesEachIdentityOnce checks that the default cluster satisfies the resource provider, which rejects an identity that
// two operators share.
func TestTemplateUsesEachIdentityOnce(t *testing.T) {
	body := clusterTemplate("s", "g", "name", "westus3", "4.20", "stable")
	assigned := body["identity"].(map[string]any)["userAssignedIdentities"].(map[string]any)
	platform := body["properties"].(map[string]any)["platform"].(map[string]any)
	ids := platform["operatorsAuthentication"].(map[string]any)["userAssignedIdentities"].(map[string]any)
	used := map[string]int{ids["serviceManagedIdentity"].(string): 1}
	for _, id := range ids["controlPlaneOperators"].(map[string]any) {
		used[id.(string)]++
	}
	for id := range assigned {
		if used[id] != 1 {
			t.Errorf("%s is assigned and used %d times", id, used[id])
		}
	}
	if len(used) != len(assigned) {
		t.Errorf("%d identities are used and %d assigned", len(used), len(assigned))
	}
	for _, id := range ids["dataPlaneOperators"].(map[string]any) {
		if _, ok := assigned[id.(string)]; ok {
			t.Errorf("%s is a data plane operator's and assigned to the cluster", id)
		}
	}
}

func TestStatusTable(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := local.Status{Phase: local.PhaseReady, Since: now.Add(-time.Minute), StateDir: "/somewhere", Processes: []local.ProcessStatus{
		{Name: "postgres", State: "Ready", Since: now.Add(-50 * time.Second), Pid: 12, Ports: map[string]int{"sql": 18407}},
		{Name: "frontend", State: "BackingOff", Since: now.Add(-time.Second), Restarts: 3, Ports: map[string]int{"ops": 18411, "https": 18401}, Message: "ended: signal: killed"},
	}}
	must.Do(t, statusTable(&environment{out: &out}, status, now))
	golden(t, "status.txt", out.String())
}

func TestStatusTableNamesFullDisk(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := local.Status{Phase: local.PhaseDegraded, Since: now.Add(-10 * time.Second), StateDir: "/somewhere", Processes: []local.ProcessStatus{
		{Name: "cosmos-emulator", State: "NotReady", Since: now.Add(-10 * time.Second), Pid: 12, Ports: map[string]int{"https": 18405},
			Message: "the disk is full: 0 of 512 MiB are free on the disk of /somewhere/cosmos; responds with status 503"},
	}, Disks: []disk.Space{{Dir: "/somewhere", TotalBytes: 512 << 20, Full: true}, {Dir: "/other", FreeBytes: 1 << 30, TotalBytes: 2 << 30}}}
	must.Do(t, statusTable(&environment{out: &out}, status, now))
	golden(t, "status-disk-full.txt", out.String())
}

// TestEventsOfAStoppedRegion checks that the command reads the file of the supervisor when no supervisor runs.
func TestEventsOfAStoppedRegion(t *testing.T) {
	state := t.TempDir()
	must.Do(t, os.MkdirAll(local.LogDir(state), 0o755))
	lines := `{"time":"2026-01-02T03:04:05Z","process":"backend","type":"Started","pid":12}
{"time":"2026-01-02T03:04:06Z","process":"backend","type":"Exited","pid":12,"exitCode":1,"message":"terminated: exit status 1: no luck"}
{"time":"2026-01-02T03:04:07Z","process":"postgres","type":"Hung","pid":7,"message":"hung: 3 consecutive liveness probes failed"}
{"time":"2026-01-02T03:04:09Z","process":"postgres","type":"Exited","pid":7,"signal":"SIGKILL"}
{"time":"2026-01-02T03:04:09Z","process":"post`
	must.Do(t, os.WriteFile(filepath.Join(local.LogDir(state), "events.jsonl"), []byte(lines), 0o600))
	tests := map[string][]string{
		"events.txt":         nil,
		"events-process.txt": {"backend"},
		"events-recent.json": {"--since", "1m", "-o", "json"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			command := New(&out, io.Discard)
			command.SetArgs(append([]string{"region", "events", "--state-dir", state}, args...))
			must.Do(t, command.ExecuteContext(t.Context()))
			golden(t, name, out.String())
		})
	}
}

func TestLogsShowLastLinesWithProcess(t *testing.T) {
	state := t.TempDir()
	must.Do(t, os.MkdirAll(local.LogDir(state), 0o755))
	for name, text := range map[string]string{"a": "one\ntwo\nthree\nunfinished", "b": "four\n"} {
		must.Do(t, os.WriteFile(filepath.Join(local.LogDir(state), name+".log"), []byte(text), 0o600))
	}
	tests := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"one":     {"one process needs no name on its lines", []string{"a", "--tail", "3"}, "two\nthree\n"},
		"all":     {"several do", []string{"--tail", "1"}, "b | four\n"},
		"tail 0":  {"0 is everything", []string{"a", "b", "--tail", "0"}, "a | one\na | two\na | three\nb | four\n"},
		"unknown": {"known ones are listed", []string{"c"}, `unknown process "c"; processes: a, b`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			command := New(&out, io.Discard)
			command.SetArgs(append([]string{"region", "logs", "--state-dir", state}, test.args...))
			err := command.ExecuteContext(t.Context())
			got := out.String()
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q: %s", got, test.want, test.reason)
			}
		})
	}
}
