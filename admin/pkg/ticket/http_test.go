package ticket_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/ticket"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

var question = ticket.Question{Ticket: "INC-42", Engineer: "oncall@example.com", ObjectID: "o", Class: "recover", Resource: "/subscriptions/s"}

// connect returns a validator that asks a server, and the file with its token.
func connect(t *testing.T, server string, transport http.RoundTripper) (*ticket.HTTP, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	validator, err := ticket.NewHTTP(server+"/validate", file, transport)
	if err != nil {
		t.Fatal(err)
	}
	return validator, file
}

// TestQuestionAndAnswers checks the request and what each response means. Only a response that states that the ticket is valid is
// an acceptance.
func TestQuestionAndAnswers(t *testing.T) {
	status, body := 0, ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var got ticket.Question
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || got != question || r.Method != http.MethodPost || r.URL.Path != "/validate" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s %+v %v", r.Method, r.URL, got, err)
		}
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	validator, _ := connect(t, server.URL, server.Client().Transport)
	long := strings.Repeat("x", 300)
	for name, tc := range map[string]struct {
		status int
		body   string
		want   ticket.Answer
		fails  string
	}{
		"valid":          {200, `{"valid": true, "title": "etcd has no leader", "link": "https://tickets.example.com/42", "more": 1}`, ticket.Answer{Valid: true, Title: "etcd has no leader", Link: "https://tickets.example.com/42"}, ""},
		"invalid":        {200, `{"valid": false, "reason": "it is closed"}`, ticket.Answer{Reason: "it is closed"}, ""},
		"link of script": {200, `{"valid": true, "link": "javascript:alert(1)"}`, ticket.Answer{Valid: true}, ""},
		"long title":     {200, `{"valid": true, "title": "` + long + `"}`, ticket.Answer{Valid: true, Title: long[:256] + "…"}, ""},
		"no statement":   {200, `{"title": "etcd has no leader"}`, ticket.Answer{}, "does not have the form"},
		"a text":         {200, `{"valid": "true"}`, ticket.Answer{}, "does not have the form"},
		"no JSON":        {200, `<html>sign in</html>`, ticket.Answer{}, "does not have the form"},
		"too long":       {200, `{"valid": true, "title": "` + strings.Repeat("x", 70<<10) + `"}`, ticket.Answer{}, "more than"},
		"unauthorized":   {401, `{"valid": true}`, ticket.Answer{}, "status 401"},
		"redirect":       {302, `{"valid": true}`, ticket.Answer{}, "status 302"},
		"failure":        {500, `{"valid": true}`, ticket.Answer{}, "status 500"},
		"created":        {201, `{"valid": true}`, ticket.Answer{}, "status 201"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body = tc.status, tc.body
			answer, err := validator.Validate(t.Context(), question)
			if diff := cmp.Diff(tc.want, answer); diff != "" {
				t.Error(diff)
			}
			switch {
			case tc.fails == "" && err != nil:
				t.Error(err)
			case tc.fails != "" && (apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(err.Error(), tc.fails) || !strings.Contains(err.Error(), server.URL)):
				t.Errorf("%v, want it to say %q and the validator", err, tc.fails)
			}
		})
	}
}

// TestOpenTickets checks the question whether a ticket is still open, and what each response means. Only a response that states that the
// ticket is not open means that it is closed.
func TestOpenTickets(t *testing.T) {
	status, body := 0, ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, err := io.ReadAll(r.Body)
		if err != nil || string(asked) != `{"ticket":"INC-42","check":"open"}` || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s %s %s %v", r.Method, r.URL, asked, err)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	validator, _ := connect(t, server.URL, server.Client().Transport)
	for name, tc := range map[string]struct {
		status int
		body   string
		want   ticket.State
		fails  string
	}{
		"open":         {200, `{"open": true, "more": 1}`, ticket.State{Open: true}, ""},
		"closed":       {200, `{"open": false, "reason": "it was resolved"}`, ticket.State{Reason: "it was resolved"}, ""},
		"long reason":  {200, `{"open": false, "reason": "` + strings.Repeat("x", 300) + `"}`, ticket.State{Reason: strings.Repeat("x", 256) + "…"}, ""},
		"not known":    {200, `{"valid": false, "reason": "the engineer is missing"}`, ticket.State{}, "does not have the form"},
		"a text":       {200, `{"open": "false"}`, ticket.State{}, "does not have the form"},
		"unauthorized": {401, `{"open": false}`, ticket.State{}, "status 401"},
		"not found":    {404, `{"open": false}`, ticket.State{}, "status 404"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body = tc.status, tc.body
			state, err := validator.Check(t.Context(), "INC-42")
			if diff := cmp.Diff(tc.want, state); diff != "" {
				t.Error(diff)
			}
			switch {
			case tc.fails == "" && err != nil:
				t.Error(err)
			case tc.fails != "" && (apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(err.Error(), tc.fails) || !strings.Contains(err.Error(), server.URL)):
				t.Errorf("%v, want it to contain %q and the validator", err, tc.fails)
			}
		})
	}
}

// TestValidatorIsAway checks that a validator that does not respond is named, and that the token is not.
func TestValidatorIsAway(t *testing.T) {
	address := netfault.ClosedAddress(t)
	validator, file := connect(t, "https://"+address, nil)
	_, err := validator.Validate(t.Context(), question)
	if apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(err.Error(), address) || strings.Contains(err.Error(), "secret") {
		t.Errorf("a closed port: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := validator.Validate(t.Context(), question); apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(err.Error(), "token") {
		t.Errorf("without a token: %v", err)
	}
	for _, wrong := range []string{"http://tickets.example.com", "tickets.example.com", "https://", "https://user:password@tickets.example.com"} {
		if _, err := ticket.NewHTTP(wrong, file, nil); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
