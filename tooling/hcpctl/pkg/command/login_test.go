package command

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/login/logintest"
)

// signedInRegion is a local region whose issuer signs people in, and whose admin requires the authentication context c1 for actions.
type signedInRegion struct {
	t        *testing.T
	issuer   *logintest.Issuer
	tokens   *authn.TokenVerifier
	stateDir string
	// person is who signs in with the browser, and terminal whether the command has one.
	person   string
	terminal bool

	mu sync.Mutex
	// asked are the requests for actions.
	asked []string
}

// newSignedInRegion starts the issuer and admin of a region without logins.
func newSignedInRegion(t *testing.T) *signedInRegion {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	r := &signedInRegion{t: t, issuer: logintest.New(t), stateDir: t.TempDir(), person: "oncall"}
	admin := httptest.NewTLSServer(r)
	t.Cleanup(admin.Close)
	application := r.issuer.Application
	r.tokens = authn.NewTokenVerifier(authn.TokenOptions{Issuer: application.Issuer, Audience: application.Audience, ClientIDs: []string{application.ClientID}, Client: admin.Client()})
	content := must.Get(json.Marshal(local.Endpoints{ARM: strings.TrimSuffix(application.Issuer, "/"+logintest.Tenant+"/v2.0"), CAFile: application.CAFile, Admin: admin.URL,
		AdminAudience: application.Audience, AdminIssuer: application.Issuer, AdminClientID: application.ClientID, EngineersFile: filepath.Join(r.stateDir, "none.json")}))(t)
	must.Do(t, os.WriteFile(filepath.Join(r.stateDir, "endpoints.json"), content, 0o600))
	return r
}

// ServeHTTP implements admin.
func (r *signedInRegion) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	caller, err := r.tokens.Authenticate(request.Context(), request)
	if err != nil {
		problem(w, http.StatusUnauthorized, "Unauthorized", "The token is not accepted.")
		return
	}
	if request.Method == http.MethodGet {
		reply(w, http.StatusOK, adminv1.Identity{Name: caller.Name, Roles: []adminv1.Role{adminv1.Reader}})
		return
	}
	r.mu.Lock()
	r.asked = append(r.asked, caller.Name+" "+strings.Join(caller.AuthenticationContexts, ","))
	r.mu.Unlock()
	if !slices.Contains(caller.AuthenticationContexts, "c1") {
		err := authn.InsufficientClaims("The claims acrs=c1 are required.", "https://issuer.example/authorize", []authn.MissingClaim{{Name: authn.ClaimAuthenticationContexts, Value: "c1"}})
		w.Header().Set("WWW-Authenticate", authn.Challenge(err))
		problem(w, http.StatusUnauthorized, "Unauthorized", err.Error())
		return
	}
	reply(w, http.StatusOK, adminv1.Elevation{ID: "e", State: adminv1.ElevationActive})
}

// hcpctl runs a command. It returns the output, and the messages with the error.
func (r *signedInRegion) hcpctl(args ...string) (string, error) {
	r.t.Helper()
	var out, messages strings.Builder
	e := newEnvironment(&out, &messages)
	var opening sync.WaitGroup
	var opened error
	e.hasBrowser = func() bool { return true }
	e.hasTerminal = func() bool { return r.terminal }
	e.browse = func(target string) error {
		opening.Go(func() { opened = r.issuer.Browser(r.person)(target) })
		return nil
	}
	root := e.root()
	root.SetArgs(append(args, "--state-dir", r.stateDir))
	err := root.ExecuteContext(r.t.Context())
	opening.Wait()
	if err != nil {
		messages.WriteString(Message(err))
	}
	if strings.Contains(messages.String(), "eyJhbGci") {
		r.t.Errorf("%q: a token is in the messages", args)
	}
	return out.String(), errors.Join(err, opened)
}

// expect runs a command whose output must contain a text.
func (r *signedInRegion) expect(want string, args ...string) {
	r.t.Helper()
	if out, err := r.hcpctl(args...); err != nil || !strings.Contains(out, want) {
		r.t.Errorf("%q: got %q, %v, want %q", args, out, err, want)
	}
}

// TestCommandsUseTheLogin signs two engineers in. Commands act as the newest one, or as that of --as, until the logout.
func TestCommandsUseTheLogin(t *testing.T) {
	r := newSignedInRegion(t)
	if _, err := r.hcpctl("logout"); ExitCode(err) != exitNotFound {
		t.Errorf("a logout without a login: %v", err)
	}
	r.expect("as oncall@example.com", "login")
	r.expect("oncall@example.com has the roles", "whoami")
	r.person = "approver"
	if _, err := r.hcpctl("login", "--as", "oncall"); err == nil || !strings.Contains(err.Error(), "not oncall") {
		t.Errorf("another person than that of --as signed in: %v", err)
	}
	r.expect("oncall@example.com has the roles", "whoami")
	r.expect("as approver@example.com", "login")
	r.expect("approver@example.com has the roles", "whoami")
	r.expect("oncall@example.com has the roles", "whoami", "--as", "oncall")
	r.expect(`"kind":"ExecCredential","status":{"expirationTimestamp"`, "access", "token", "--as", "approver")
	r.expect("logged out", "logout", "--as", "approver")
	r.expect("oncall@example.com has the roles", "whoami")
	r.expect("logged out", "logout")
	if _, err := r.hcpctl("whoami"); err == nil || !strings.Contains(err.Error(), "none.json") {
		t.Errorf("after the logout, the credentials file is not used: %v", err)
	}
}

// TestClaimsChallengeSignsInAgain checks that a command in a terminal signs in again and repeats the request once, and that another one prints the
// command to run.
func TestClaimsChallengeSignsInAgain(t *testing.T) {
	r := newSignedInRegion(t)
	r.expect("as oncall@example.com", "login")
	_, err := r.hcpctl("access", "activate", "e")
	if err == nil || !strings.Contains(err.Error(), "acrs=c1") {
		t.Fatalf("without a terminal: %v", err)
	}
	command := regexp.MustCompile("`hcpctl (login --as oncall@example.com --claims-challenge [A-Za-z0-9+/=]+)`").FindStringSubmatch(err.Error())
	if command == nil {
		t.Fatalf("the message has no command to run: %v", err)
	}
	r.terminal = true
	r.expect("is elevated", "access", "activate", "e")
	want := []string{"oncall@example.com ", "oncall@example.com ", "oncall@example.com c1"}
	if !slices.Equal(r.asked, want) {
		t.Errorf("admin got %q, want %q", r.asked, want)
	}
	r.expect("is elevated", "access", "activate", "e")
	if len(r.asked) != 4 {
		t.Errorf("the token with the claims is not used again: %q", r.asked)
	}

	r.expect("as oncall@example.com", "login")
	r.expect("as oncall@example.com", strings.Fields(command[1])...)
	r.terminal = false
	r.expect("is elevated", "access", "activate", "e")
	if _, err := r.hcpctl("login", "--claims-challenge", "%"); err == nil || !strings.Contains(err.Error(), "--claims-challenge") {
		t.Errorf("an invalid challenge: %v", err)
	}
}

// TestLoginOutsideOfLocalRegion checks that a login is found by its audience, and which flags a login needs.
func TestLoginOutsideOfLocalRegion(t *testing.T) {
	r := newSignedInRegion(t)
	application := r.issuer.Application
	r.expect("as oncall@example.com", "login", "--issuer", application.Issuer, "--client-id", application.ClientID, "--admin-audience", application.Audience, "--ca-file", application.CAFile)
	if _, err := r.hcpctl("whoami", "--admin-audience", application.Audience, "--admin-endpoint", "https://127.0.0.1:1", "--as", "nobody"); err == nil || !strings.Contains(err.Error(), "no login of") {
		t.Errorf("an engineer without a login: %v", err)
	}
	// Nothing listens there. The request is sent, so that there was a token for it.
	if _, err := r.hcpctl("whoami", "--admin-audience", application.Audience, "--admin-endpoint", "https://127.0.0.1:1", "--as", "oncall"); ExitCode(err) != exitUnavailable {
		t.Errorf("a login of another region: %v", err)
	}
	for want, args := range map[string][]string{
		"--issuer is required":    {"login", "--admin-audience", "api://admin"},
		"--client-id is required": {"login", "--issuer", application.Issuer, "--admin-audience", "api://admin"},
	} {
		if _, err := r.hcpctl(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", args, err, want)
		}
	}
}
