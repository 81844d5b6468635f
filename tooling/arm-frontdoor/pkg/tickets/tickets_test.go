package tickets_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/tickets"
)

// TestAnswers checks the rule of the stand-in, and that it answers only callers with the token.
func TestAnswers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "closed")
	server := &tickets.Server{PublicURL: "https://tickets.example.com", Token: "secret", ClosedFile: file}
	ask := func(method, token, body string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, tickets.Path, strings.NewReader(body))
		request.Header.Set("Authorization", token)
		server.ServeHTTP(recorder, request)
		return recorder
	}
	valid := func(ticket string, want bool) {
		t.Helper()
		answer := ask(http.MethodPost, "Bearer secret", `{"ticket":"`+ticket+`","engineer":"oncall"}`)
		if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), `"valid":true`) != want {
			t.Errorf("%s: %d %s, want %t", ticket, answer.Code, answer.Body, want)
		}
		answer = ask(http.MethodPost, "Bearer secret", `{"ticket":"`+ticket+`","check":"open"}`)
		if answer.Code != http.StatusOK || strings.Contains(answer.Body.String(), `"open":true`) != want || strings.Contains(answer.Body.String(), "valid") {
			t.Errorf("%s is open: %d %s, want %t", ticket, answer.Code, answer.Body, want)
		}
	}
	valid("INC-42", true)
	for _, unknown := range []string{"", "INC", "INC-", "inc-42", "INC-042", "INC-42 ", "I-1", "INC-1234567890"} {
		valid(unknown, false)
	}
	must.Do(t, os.WriteFile(file, []byte("CHG-1\nINC-42\n"), 0o600))
	valid("INC-42", false)
	valid("INC-4", true)
	for _, tc := range []struct {
		method, token, body string
		want                int
	}{
		{http.MethodPost, "", `{"ticket":"INC-4"}`, http.StatusUnauthorized},
		{http.MethodPost, "Bearer wrong", `{"ticket":"INC-4"}`, http.StatusUnauthorized},
		{http.MethodGet, "Bearer secret", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "Bearer secret", "INC-4", http.StatusBadRequest},
		{http.MethodPost, "Bearer secret", `{"ticket":"INC-4","check":"closed"}`, http.StatusBadRequest},
	} {
		if answer := ask(tc.method, tc.token, tc.body); answer.Code != tc.want {
			t.Errorf("%s with token %q: %d, want %d", tc.method, tc.token, answer.Code, tc.want)
		}
	}
	server.Token = ""
	if answer := ask(http.MethodPost, "Bearer ", `{"ticket":"INC-4"}`); answer.Code != http.StatusUnauthorized {
		t.Errorf("a server without a token: %d", answer.Code)
	}
}
