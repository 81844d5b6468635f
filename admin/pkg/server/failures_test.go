package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

// TestFailedAuthenticationsAreLimited sends requests without a valid token: after some of them the peer gets 429 with the time of the
// next attempt. Engineers with a valid token at the same address are not affected.
func TestFailedAuthenticationsAreLimited(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	now := time.Unix(0, 0)
	config := h.config
	config.Metrics, config.AuthenticationFailures, config.Now = prometheus.NewRegistry(), &ratelimit.Limit{Size: 2, PerSecond: 0.1}, func() time.Time { return now }
	handler := server.New(config)
	send := func(token string) *httptest.ResponseRecorder {
		answer, request := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, adminv1.Root+"/me", nil)
		request.Header.Set("Authorization", token)
		handler.ServeHTTP(answer, request)
		return answer
	}
	for i, step := range []struct {
		token  string
		status int
		after  string
	}{
		{"Basic x", http.StatusUnauthorized, ""}, {"", http.StatusUnauthorized, ""},
		{"Basic x", http.StatusTooManyRequests, "10"}, {"Bearer operator", http.StatusOK, ""}, {"", http.StatusTooManyRequests, "10"},
	} {
		answer := send(step.token)
		if answer.Code != step.status || answer.Header().Get("Retry-After") != step.after {
			t.Errorf("step %d: %d with Retry-After %q: %s", i, answer.Code, answer.Header().Get("Retry-After"), answer.Body)
		}
	}
	now = now.Add(10 * time.Second)
	if answer := send(""); answer.Code != http.StatusUnauthorized {
		t.Errorf("after the time: %d %s", answer.Code, answer.Body)
	}
}
