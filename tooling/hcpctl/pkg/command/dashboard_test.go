package command

import (
	"bytes"
	"encoding/json"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// newPrometheus returns the URL of a server with the API of Prometheus that has a series of the shard mgmt-1 for each query, with the value 1 at the end.
func newPrometheus(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metric := map[string]any{"shard": "mgmt-1"}
		var data any
		switch r.URL.Path {
		case "/api/v1/query":
			data = map[string]any{"resultType": "vector", "result": []any{map[string]any{"metric": metric, "value": []any{1764000000, "1"}}}}
		case "/api/v1/query_range":
			data = map[string]any{"resultType": "matrix", "result": []any{map[string]any{"metric": metric, "values": []any{[]any{json.Number(r.FormValue("end")), "1"}}}}}
		case "/api/v1/label/shard/values":
			data = []string{"mgmt-1"}
		default:
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// dashboardFlags are a Prometheus and a period with its values.
func dashboardFlags(t *testing.T) []string {
	t.Helper()
	return []string{"--prometheus=" + newPrometheus(t), "--from=2025-11-24T15:00:00Z", "--to=2025-11-24T17:00:00Z"}
}

func dashboardCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	root := New(&out, &out)
	root.SetArgs(append([]string{"dashboard"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestDashboardList(t *testing.T) {
	out := must.Get(dashboardCommand(t, "list", "-o", "json"))(t)
	var list []struct {
		Name      string
		Variables []string
	}
	must.Do(t, json.Unmarshal([]byte(out), &list))
	found := false
	for _, d := range list {
		found = found || d.Name == "shard-triage" && slices.Equal(d.Variables, []string{"shard"})
	}
	if !found {
		t.Errorf("the list is %s", out)
	}
}

func TestDashboardShow(t *testing.T) {
	out := must.Get(dashboardCommand(t, append(dashboardFlags(t), "show", "shard-triage", "-o", "json", "--bad", "--variable=shard=mgmt-1")...))(t)
	var panels []panelSummary
	must.Do(t, json.Unmarshal([]byte(out), &panels))
	if len(panels) == 0 {
		t.Fatal("no panel is beyond its limit")
	}
	for _, p := range panels {
		if p.Runbook == "" || len(p.Series) == 0 || !p.Series[0].Bad {
			t.Errorf("the panel is %+v", p)
		}
	}
	table := must.Get(dashboardCommand(t, append(dashboardFlags(t), "show", "shard-triage")...))(t)
	if !strings.Contains(table, "see docs/operators/removed-objects.md") || !strings.Contains(table, "Clusters: State") {
		t.Errorf("the table is:\n%s", table)
	}
}

func TestDashboardRender(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	must.Get(dashboardCommand(t, append(dashboardFlags(t), "render", "shard-triage", "capacity", "--into", dir)...))(t)
	for _, name := range []string{"shard-triage", "capacity"} {
		picture := must.Get(os.ReadFile(filepath.Join(dir, name+".png")))(t)
		if _, err := png.Decode(bytes.NewReader(picture)); err != nil {
			t.Errorf("%s.png: %v", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, name+".svg")); err != nil || !bytes.Contains(text, []byte("mgmt-1")) {
			t.Errorf("%s.svg has no series: %v", name, err)
		}
	}
}

func TestDashboardErrors(t *testing.T) {
	flags := dashboardFlags(t)
	into := "--into=" + t.TempDir()
	tests := map[string]struct {
		args []string
		code int
		text string
	}{
		"unknown dashboard":      {append(flags, "show", "none"), exitNotFound, "none"},
		"unknown variable":       {append(flags, "show", "capacity", "--variable=shard=mgmt-1"), exitFailed, "--variable: shard"},
		"value without series":   {append(flags, "show", "shard-triage", "--variable=shard=mgmt-9"), exitFailed, "mgmt-9"},
		"variable without value": {append(flags, "show", "shard-triage", "--variable=shard"), exitUsage, "--variable"},
		"empty period":           {append(flags, "show", "region", "--to=2025-11-24T15:00:00Z"), exitUsage, "--from"},
		"unknown format":         {append(flags, "render", "region", into, "--format=gif"), exitUsage, "--format"},
		"no folder":              {append(flags, "render", "region"), exitUsage, "into"},
		"too many dots":          {append(flags, "render", "region", into, "--dots=99"), exitUsage, "--dots"},
		"no URL":                 {[]string{"show", "region", "--prometheus=localhost:9090"}, exitUsage, "--prometheus"},
		"server away":            {[]string{"show", "region", "--prometheus=http://" + netfault.ClosedAddress(t)}, exitUnavailable, "Prometheus"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := dashboardCommand(t, slices.Clone(tc.args)...)
			if ExitCode(err) != tc.code || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("the exit code is %d, want %d; the error is %v", ExitCode(err), tc.code, err)
			}
		})
	}
	const password = "hunter2"
	_, err := dashboardCommand(t, "show", "region", "--prometheus=http://me:"+password+"@127.0.0.1:1")
	if ExitCode(err) != exitUsage || strings.Contains(err.Error(), password) {
		t.Errorf("the error for a URL with a password is %v", err)
	}
}
