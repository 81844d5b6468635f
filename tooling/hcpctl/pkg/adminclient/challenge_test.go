package adminclient_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// claims is the claims request of the challenge of stepUp.
const claims = `{"access_token":{"acrs":{"essential":true,"value":"c1"}}}`

// stepUp is an issuer of tokens, and an admin that challenges tokens without a claim.
type stepUp struct {
	// refuses makes the issuer refuse requests with claims, and insufficient makes it ignore the claims.
	refuses, insufficient bool

	mu sync.Mutex
	// issued are the claims of the requests for tokens, and asked the requests to admin with their tokens, keys and bodies.
	issued []string
	asked  []string
}

// connect returns a client of the simulated services.
func (s *stepUp) connect(t *testing.T) *adminclient.Client {
	return connectTo(t, s.issue, s.answer)
}

// issue issues a token that has the requested claims.
func (s *stepUp) issue(w http.ResponseWriter, form url.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued = append(s.issued, form.Get("claims"))
	token := "plain"
	switch {
	case form.Get("claims") != "" && s.refuses:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"interaction_required","error_description":"AADSTS50076: you must use multi-factor authentication"}`))
		return
	case form.Get("claims") == claims && !s.insufficient:
		token = "stepped-up"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "expires_in": 3600})
}

// answer challenges requests whose token lacks the claim.
func (s *stepUp) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	var body adminv1.DecisionRequest
	_ = json.NewDecoder(r.Body).Decode(&body)
	key := r.Header.Get(adminv1.IdempotencyKey)
	if key != "" {
		key = "the key"
	}
	s.asked = append(s.asked, strings.TrimSpace(strings.Join([]string{r.Method, strings.TrimPrefix(r.URL.Path, adminv1.Root), token, key, body.Reason}, " ")))
	if token != "stepped-up" {
		err := authn.InsufficientClaims("The role break-glass requires a token with the claims acrs=c1.", "https://issuer.example/authorize",
			[]authn.MissingClaim{{Name: authn.ClaimAuthenticationContexts, Value: "c1"}})
		var challenge *authn.ChallengeError
		if !errors.As(err, &challenge) {
			panic(err)
		}
		w.Header().Set("WWW-Authenticate", challenge.Challenge)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"error":{"code":"Unauthorized","message":"The role break-glass requires a token with the claims acrs=c1."}}`))
		return
	}
	_ = json.NewEncoder(w).Encode(adminv1.Elevation{ID: "e", State: adminv1.ElevationActive})
}

// TestChallengedRequestIsRepeated makes admin answer with a claims challenge. The client requests a token with the claims and sends the
// same request again; later requests use this token.
func TestChallengedRequestIsRepeated(t *testing.T) {
	s := &stepUp{}
	client := s.connect(t)
	must.Get(client.ApproveElevation(t.Context(), "e", "it is needed"))(t)
	must.Get(client.Act(t.Context(), adminv1.ActionClusterPause, adminv1.DecisionRequest{Reason: "it is stuck"}, "c"))(t)
	if diff := cmp.Diff([]string{"", claims}, s.issued); diff != "" {
		t.Errorf("requests for tokens: %s", diff)
	}
	want := []string{"POST /elevations/e/approve plain  it is needed", "POST /elevations/e/approve stepped-up  it is needed", "POST /clusters/c/pause stepped-up the key it is stuck"}
	if diff := cmp.Diff(want, s.asked); diff != "" {
		t.Errorf("requests to admin: %s", diff)
	}
}

// TestChallengedWaitIsRepeated makes admin challenge a request that waits for a decision.
func TestChallengedWaitIsRepeated(t *testing.T) {
	s := &stepUp{}
	elevation, err := s.connect(t).AwaitDecision(t.Context(), &adminv1.Elevation{ID: "e", State: adminv1.ElevationRequested})
	if err != nil || elevation.State != adminv1.ElevationActive {
		t.Fatalf("%+v, %v", elevation, err)
	}
	if diff := cmp.Diff([]string{"GET /elevations/e plain", "GET /elevations/e stepped-up"}, s.asked); diff != "" {
		t.Error(diff)
	}
}

// TestChallengeIsAnsweredOnce checks that a client that cannot get the claims repeats a request once only, and that the error names the
// claims.
func TestChallengeIsAnsweredOnce(t *testing.T) {
	ignored := &stepUp{insufficient: true}
	_, err := ignored.connect(t).ActivateElevation(t.Context(), "e")
	var answered *adminclient.Error
	if !errors.As(err, &answered) || answered.Status != http.StatusUnauthorized || !strings.Contains(err.Error(), "claims acrs=c1") {
		t.Errorf("an issuer that ignores the claims: %v", err)
	}
	if len(ignored.asked) != 2 || len(ignored.issued) != 2 {
		t.Errorf("admin got %q, and the issuer %q", ignored.asked, ignored.issued)
	}

	refused := &stepUp{refuses: true}
	_, err = refused.connect(t).ActivateElevation(t.Context(), "e")
	if err == nil || adminclient.IsRetryable(err) || !strings.Contains(err.Error(), "sign in with the claims acrs=c1") || !strings.Contains(err.Error(), "AADSTS50076") {
		t.Errorf("an issuer that refuses the claims: %v", err)
	}
	if len(refused.asked) != 1 {
		t.Errorf("admin got %q", refused.asked)
	}
}

// TestAzureCLIIsNamed uses the Azure CLI, which signs in for nobody else: the error has the command that does.
func TestAzureCLIIsNamed(t *testing.T) {
	s := &stepUp{}
	dir := t.TempDir()
	program := "#!/bin/sh\necho \"$@\" >> " + filepath.Join(dir, "calls") + `
echo '{"accessToken": "plain", "expires_on": 4102444800}'
`
	must.Do(t, os.WriteFile(filepath.Join(dir, "az"), []byte(program), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	client := connectAs(t, func(options *adminclient.Options) { options.CredentialsFile = "" }, s.issue, s.answer)
	_, err := client.ActivateElevation(t.Context(), "e")
	want := "az login --scope api://admin/.default --claims-challenge " + base64.StdEncoding.EncodeToString([]byte(claims))
	if err == nil || adminclient.IsRetryable(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "claims acrs=c1") {
		t.Errorf("got %v, want %q in it", err, want)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || strings.Count(string(calls), "\n") != 1 || !strings.Contains(string(calls), "--resource api://admin") {
		t.Errorf("the Azure CLI was called with %q, %v", calls, err)
	}
	if len(s.asked) != 1 || len(s.issued) != 0 {
		t.Errorf("admin got %q, and the issuer %q", s.asked, s.issued)
	}
}
