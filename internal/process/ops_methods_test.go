package process

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// TestOpsPortOnlyReads sends each method to each path of the port for health and metrics, which has no authentication, and to paths that
// other ports have. Exactly the reads in the authorization table pass.
func TestOpsPortOnlyReads(t *testing.T) {
	handler := New("frontend", slog.New(slog.DiscardHandler)).OpsHandler()
	var served []string
	for _, rule := range mesh.OpenRules() {
		if path, ok := strings.CutPrefix(rule.Method, "GET "); ok && rule.Server == mesh.Operations {
			served = append(served, path)
		}
	}
	if len(served) == 0 {
		t.Fatal("the authorization table has no rows for the port")
	}
	others := []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/metrics/", "/healthz/x", "/admin/v1/me", "/subscriptions/x", "/api/maestro/v1/consumers", "/_emulator/faults"}
	for _, path := range slices.Concat(served, others) {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace} {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
			want := http.StatusNotFound
			switch reads := method == http.MethodGet || method == http.MethodHead; {
			case slices.Contains(served, path) && reads:
				want = http.StatusOK
			case slices.Contains(served, path):
				want = http.StatusMethodNotAllowed
			}
			if recorder.Code != want {
				t.Errorf("%s %s: status %d, want %d", method, path, recorder.Code, want)
			}
		}
	}
}
