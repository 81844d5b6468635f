package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestVersionsAreThoseOfClusterService: the list is transferred once, each request asks whether it has changed, and a
// request fails with a clear error while Cluster Service does not answer.
func TestVersionsAreThoseOfClusterService(t *testing.T) {
	h := newHarness(t)
	y := h.newSubscription(t)
	list := "/subscriptions/" + y.subscription + "/providers/Microsoft.RedHatOpenShift/locations/" + location + "/hcpOpenShiftVersions"
	y.mustDo(http.StatusOK, http.MethodGet, list, "")
	y.mustDo(http.StatusOK, http.MethodGet, list+"/4.21.4", "")
	h.clusterService.mu.Lock()
	requests := slices.Clone(h.clusterService.versionRequests)
	h.clusterService.versionsUnavailable = true
	h.clusterService.mu.Unlock()
	if want := []string{"", "1"}; !slices.Equal(requests, want) {
		t.Errorf("requests with the etags %q, want %q", requests, want)
	}
	status, header, body := y.do(http.MethodGet, list, "")
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || strings.Contains(body, "5432") {
		t.Errorf("while Cluster Service is unavailable: %d %v %s", status, header, body)
	}
	h.clusterService.mu.Lock()
	h.clusterService.versionsUnavailable = false
	h.clusterService.mu.Unlock()
	y.mustDo(http.StatusOK, http.MethodGet, list, "")
}
