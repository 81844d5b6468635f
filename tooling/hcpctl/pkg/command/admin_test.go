package command

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// sres simulates admin and the issuer of its tokens. It returns the responses of the test and records the requests. Operations
// end immediately. test/deletion and test/e2e run hcpctl with the real admin.
type sres struct {
	*httptest.Server
	dir string

	mu sync.Mutex
	// asked records the requests that change something, with their bodies.
	asked []string
	// shown holds the responses of reads by path and query; results the results of operations by method and path.
	shown, results map[string]any
	// refused holds the messages of rejected requests by method and path.
	refused map[string]string
	// elevation is the response to a request for an elevation; active if it is empty.
	elevation adminv1.Elevation
	// pending lists the requests whose operations do not end, by method and path.
	pending map[string]bool
}

func newSREs(t *testing.T) *sres {
	t.Helper()
	a := &sres{dir: t.TempDir(), shown: map[string]any{}, results: map[string]any{}, refused: map[string]string{}}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	for name, data := range map[string][]byte{
		"ca.crt":         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}),
		"engineers.json": []byte(`[{"tenantId": "t", "clientId": "c", "clientSecret": "s"}]`),
	} {
		must.Do(t, os.WriteFile(filepath.Join(a.dir, name), data, 0o600))
	}
	return a
}

// asciicast is a response with the content of a recording. One that is aborted has no end.
type asciicast struct {
	text    string
	aborted bool
}

// connect returns a client of the simulated admin.
func (a *sres) connect(options adminclient.Options) (*adminclient.Client, error) {
	options.Endpoint, options.Authority, options.CAFile = a.URL, a.URL, filepath.Join(a.dir, "ca.crt")
	options.CredentialsFile, options.Audience = filepath.Join(a.dir, "engineers.json"), "api://admin"
	return adminclient.New(options)
}

// ServeHTTP implements http.Handler.
func (a *sres) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/token") {
		reply(w, http.StatusOK, map[string]any{"access_token": "token", "expires_in": 3600})
		return
	}
	path := strings.TrimPrefix(r.URL.Path, adminv1.Root)
	if r.Method == http.MethodGet {
		if r.URL.RawQuery != "" {
			path += "?" + r.URL.RawQuery
		}
		answer, ok := a.shown[path]
		if !ok {
			problem(w, http.StatusNotFound, "NotFound", "There is no "+path+".")
			return
		}
		if cast, ok := answer.(asciicast); ok {
			_, _ = io.WriteString(w, cast.text)
			if cast.aborted {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
			return
		}
		reply(w, http.StatusOK, answer)
		return
	}
	line := r.Method + " " + path
	body, _ := io.ReadAll(r.Body)
	if path == "/elevations" {
		var request adminv1.ElevationRequest
		_ = json.Unmarshal(body, &request)
		a.asked = append(a.asked, line+" "+string(request.Class)+": "+request.Reason+" ("+request.Ticket+")")
		created := a.elevation
		if created.ID == "" {
			created = adminv1.Elevation{ID: "e", State: adminv1.ElevationActive}
		}
		reply(w, http.StatusCreated, created)
		return
	}
	asked, target := line, adminv1.Target{ID: path[strings.LastIndexByte(path, '/')+1:]}
	if len(body) > 0 {
		var compact bytes.Buffer // protobuf's encoder varies its spaces
		_ = json.Compact(&compact, body)
		asked += " " + compact.String()
	}
	a.asked = append(a.asked, asked)
	switch result, known := a.results[line]; {
	case strings.HasPrefix(path, "/silences"):
		state := adminv1.SilenceActive
		if strings.HasSuffix(path, "/end") {
			state = adminv1.SilenceExpired
		}
		reply(w, http.StatusOK, adminv1.Silence{ID: "s", State: state, Matchers: []adminv1.SilenceMatcher{{Name: "alertname", Value: "AgentSilent"}}, EndTime: day.AsTime()})
	case strings.HasPrefix(path, "/elevations/"):
		changed := adminv1.Elevation{ID: "e", State: adminv1.ElevationEnded, Class: adminv1.BreakGlassAccess, Credentials: a.elevation.Credentials}
		if strings.HasSuffix(path, "/activate") {
			changed.State = adminv1.ElevationActive
		}
		reply(w, http.StatusOK, changed)
	case a.pending[line]:
		reply(w, http.StatusAccepted, adminv1.Operation{ID: "o", Action: "test", Target: target, State: adminv1.Accepted})
	case a.refused[line] != "":
		problem(w, http.StatusConflict, "Conflict", a.refused[line])
	case known:
		content, _ := json.Marshal(result)
		reply(w, http.StatusAccepted, adminv1.Operation{ID: "o", Action: "test", Target: target, State: adminv1.Succeeded, Result: content})
	default:
		reply(w, http.StatusAccepted, adminv1.Operation{ID: "o", Action: "test", Target: target, State: adminv1.Succeeded})
	}
}

// hcpctl runs a command with the simulated admin.
func (a *sres) hcpctl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	root := NewFor(&out, t.Output(), a.connect)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// sreGroup runs the commands of a group of hcpctl.
type sreGroup struct {
	*sres
	name string
	// reason and ticket are those of the actions.
	reason, ticket string
	// plain replaces what differs from run to run in the output; nil for nothing.
	plain func(string) string
}

func (g *sreGroup) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := g.hcpctl(t, append([]string{g.name}, args...)...)
	if g.plain != nil {
		out = g.plain(out)
	}
	return out, err
}

// because adds the flags of an action to its command.
func (g *sreGroup) because(args ...string) []string {
	return append(args, "--reason", g.reason, "--ticket", g.ticket)
}

// prints compares the outputs of commands with golden files.
func (g *sreGroup) prints(t *testing.T, files map[string][]string) {
	t.Helper()
	for name, args := range files {
		out := must.Get(g.run(t, args...))(t)
		golden(t, name, out)
	}
}

// sreAction is a command with its class, the request that admin gets while the class is elevated, and a part of the output.
type sreAction struct {
	args          []string
	class         adminv1.AccessClass
	request, says string
}

func (g *sreGroup) acts(t *testing.T, actions []sreAction) {
	t.Helper()
	for _, tc := range actions {
		g.asked = nil
		out, err := g.run(t, g.because(tc.args...)...)
		if err != nil || !strings.Contains(out, tc.says) {
			t.Errorf("%v: %v, it says %q, want %q", tc.args, err, out, tc.says)
		}
		want := []string{fmt.Sprintf("POST /elevations %s: %s (%s)", tc.class, g.reason, g.ticket), tc.request, "DELETE /elevations/e"}
		if !slices.Equal(g.asked, want) {
			t.Errorf("%v: admin was asked\n%q, want\n%q", tc.args, g.asked, want)
		}
	}
}

// rejectedCommand is a command that fails, with a part of its error.
type rejectedCommand struct {
	reason string
	args   []string
	says   string
}

func (g *sreGroup) rejects(t *testing.T, cases map[string]rejectedCommand) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := g.run(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want it to say %q: %s", err, tc.says, tc.reason)
			}
		})
	}
}

// TestSignInOutsideOfLocalRegion checks that a person who acts with the Azure CLI names admin, and no engineer of a local region.
func TestSignInOutsideOfLocalRegion(t *testing.T) {
	for want, arguments := range map[string][]string{
		"--admin-endpoint is required":        {"whoami", "--admin-audience", "api://admin"},
		"--as selects an engineer of a local": {"whoami", "--admin-audience", "api://admin", "--admin-endpoint", "https://admin.example", "--as", "oncall"},
	} {
		root := New(io.Discard, io.Discard)
		root.SetArgs(arguments)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", arguments, err, want)
		}
	}
}
