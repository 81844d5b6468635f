package command

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/spf13/cobra"
)

// TestAReasonTakesTheRoleForOneCommand: with a reason and a ticket the role that the command needs is taken before and given
// back after, also when admin refuses what is asked; without them nothing is taken.
func TestAReasonTakesTheRoleForOneCommand(t *testing.T) {
	var asked []string
	refuse := false
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, adminv1.Root)
		if strings.HasSuffix(path, "/token") {
			reply(w, http.StatusOK, map[string]any{"access_token": "token", "expires_in": 3600})
			return
		}
		line := r.Method + " " + path
		if r.Method == http.MethodPost && path == "/elevations" {
			var request adminv1.ElevationRequest
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				t.Error(err)
			}
			line += " " + string(request.Role) + ": " + request.Reason + " (" + request.Ticket + ")"
		}
		asked = append(asked, line)
		switch {
		case strings.HasPrefix(path, "/elevations"):
			reply(w, http.StatusOK, adminv1.Elevation{ID: "e"})
		case refuse:
			problem(w, http.StatusConflict, "Conflict", "It is being changed.")
		default:
			reply(w, http.StatusAccepted, adminv1.Operation{ID: "o", Action: adminv1.ActionNodePoolScale, State: adminv1.Succeeded,
				Result: json.RawMessage(`{"armOperationId": "a", "generation": 4}`)})
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
	var out strings.Builder
	run := func(t *testing.T, make func(*environment) *cobra.Command, args ...string) error {
		t.Helper()
		asked = nil
		out.Reset()
		e := &environment{out: &out, err: &out, connect: func(options adminclient.Options) (*adminclient.Client, error) {
			options.Endpoint, options.Authority, options.CAFile = server.URL, server.URL, filepath.Join(dir, "ca.crt")
			options.CredentialsFile, options.Audience = filepath.Join(dir, "engineers.json"), "api://admin"
			return adminclient.New(options)
		}}
		c := make(e)
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(args)
		return c.ExecuteContext(t.Context())
	}
	because := []string{"--reason", "the batch is late", "--ticket", "INC-1"}
	const elevate, end = "POST /elevations operator: the batch is late (INC-1)", "DELETE /elevations/e"
	const scale = "POST /clusters/demo/node-pools/np/scale"
	for name, tc := range map[string]struct {
		reason string
		make   func(*environment) *cobra.Command
		args   []string
		refuse bool
		want   []string
		says   string
	}{
		"reason": {"the role is taken and given back", (*environment).nodePoolResize, append([]string{"demo", "np", "--replicas", "5"}, because...), false,
			[]string{elevate, scale, end}, ""},
		"refused": {"also when it was for nothing", (*environment).nodePoolResize, append([]string{"demo", "np", "--replicas", "5"}, because...), true,
			[]string{elevate, scale, end}, "It is being changed."},
		"none":      {"whoever has elevated says no more", (*environment).nodePoolResize, []string{"demo", "np", "--min", "1", "--max", "3"}, false, []string{scale}, ""},
		"no ticket": {"both are wanted", (*environment).nodePoolResize, []string{"demo", "np", "--replicas", "5", "--reason", "the batch is late"}, false, nil, "ticket"},
		"no size":   {"a size is wanted", (*environment).nodePoolResize, []string{"demo", "np"}, false, nil, "replicas"},
		"no min":    {"a bound alone is none", (*environment).nodePoolResize, []string{"demo", "np", "--max", "3"}, false, nil, "min"},
		"orphan": {"each command takes the role that it needs", (*environment).orphanDelete, append([]string{"b"}, because...), false,
			[]string{strings.Replace(elevate, "operator", "break-glass", 1), "DELETE /orphans/b", end}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			refuse = tc.refuse
			err := run(t, tc.make, tc.args...)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v, want it to say %q", tc.reason, err, tc.says)
			}
			if !slices.Equal(asked, tc.want) {
				t.Errorf("%s: admin was asked %q, want %q", tc.reason, asked, tc.want)
			}
		})
	}
	refuse = false
	if err := run(t, (*environment).nodePoolResize, "demo", "np", "--replicas", "5", "--no-wait"); err != nil || !strings.Contains(out.String(), "operation o") {
		t.Errorf("it says %q: %v", out.String(), err)
	}
	server.Close()
	if err := run(t, (*environment).nodePoolResize, "demo", "np", "--replicas", "5"); err == nil || !strings.Contains(err.Error(), "admin") || !strings.Contains(err.Error(), "hcpctl region") {
		t.Errorf("while admin is away: %v", err)
	}
}
