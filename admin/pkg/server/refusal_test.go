package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
)

// TestRefusedRequestsAreBounded floods admin with requests that it refuses: without a token, without a role and without an elevation. Each
// kind has two records, and the second one has the number of the others.
func TestRefusedRequestsAreBounded(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	config := h.config
	refused := refusals.New(h.trail)
	config.Refusals, config.Metrics = refused, prometheus.NewRegistry()
	ctx, stop := context.WithCancel(t.Context())
	var counting sync.WaitGroup
	counting.Go(func() { refused.Run(ctx) })
	handler := server.New(config)
	anonymous := func(method, path string) int {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, adminv1.Root+path, nil))
		return recorder.Code
	}
	const flood = 500
	for range flood {
		for what, got := range map[string]struct{ code, want int }{
			"no token, a read":   {anonymous(http.MethodGet, "/clusters/"+uid+"/dump"), http.StatusUnauthorized},
			"no token, a change": {anonymous(http.MethodPost, "/clusters/"+uid+"/pause"), http.StatusUnauthorized},
			"no role":            {ask(handler, "guest", "", http.MethodGet, "/clusters/"+uid, "").Code, http.StatusForbidden},
			"no elevation":       {ask(handler, "operator", "", http.MethodPost, "/clusters/"+uid+"/pause", `{"duration":"1h"}`).Code, http.StatusForbidden},
		} {
			if got.code != got.want {
				t.Fatalf("%s: %d, want %d", what, got.code, got.want)
			}
		}
	}
	stop()
	counting.Wait()
	type kind struct{ person, action, outcome, code string }
	records, counts := map[kind]int{}, map[kind]int{}
	for _, r := range h.trail.Records(t) {
		of := kind{r.Person.Name, r.Action, r.Outcome, r.Code}
		records[of]++
		counts[of] += max(r.Count, 1)
	}
	for of, n := range records {
		if n > flood/10 { // two for each window; a slow machine needs several
			t.Errorf("%+v has %d records", of, n)
		}
	}
	want := map[kind]int{
		{"", "authenticate", audit.Refused, "Unauthorized"}:                    2 * flood,
		{"guest@example.com", "clusters.get", audit.Refused, "Forbidden"}:      flood,
		{"operator@example.com", "clusters.pause", audit.Refused, "Forbidden"}: flood,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("refusals in the audit (-want +got):\n%s", diff)
	}
}
