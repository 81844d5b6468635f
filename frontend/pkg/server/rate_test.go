package server_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRateOutsideOfSubscriptions sends too many requests to paths without a subscription, known and unknown, in the name of one customer.
// Other customers and requests in subscriptions still get responses.
func TestRateOutsideOfSubscriptions(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	h := newHarness(t, func(c *server.Config) {
		c.Rate, c.Now = &ratelimit.Limit{Size: 2, PerSecond: 0.1}, func() time.Time { return now }
	})
	const operations, version = "/providers/Microsoft.RedHatOpenShift/operations", "?api-version=2026-09-01-preview"
	for i, step := range []struct {
		path, customer string
		status         int
		after          string
	}{
		{operations, "ada", http.StatusOK, ""}, {"/no/route", "ada", http.StatusNotFound, ""},
		{operations, "ada", http.StatusTooManyRequests, "10"}, {"/no/route", "ada", http.StatusTooManyRequests, "10"},
		{"/subscriptions/x", "ada", http.StatusTooManyRequests, "10"},
		{operations, "eve", http.StatusOK, ""},
		{"/subscriptions/11111111-1111-1111-1111-111111111111" + operations[:len(operations)-len("/operations")] + "/hcpOpenShiftClusters", "ada", http.StatusBadRequest, ""},
	} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+step.path+version, nil))(t)
		request.Header.Set(armheader.ClientObjectID, step.customer)
		response := must.Get(h.client.Do(request))(t)
		_ = response.Body.Close()
		if response.StatusCode != step.status || response.Header.Get("Retry-After") != step.after {
			t.Errorf("step %d: %s with Retry-After %q, want %d", i, response.Status, response.Header.Get("Retry-After"), step.status)
		}
	}
}
