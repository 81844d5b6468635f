package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestVersionsAreThoseOfClusterService: the list is transferred once, each request asks whether it has changed, and a
// request fails with a clear error while Cluster Service does not answer.
func TestVersionsAreThoseOfClusterService(t *testing.T) {
	t.Parallel()
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

// TestChannelsAreThoseOfClusterService: a cluster cannot be upgraded to a version that Cluster Service cannot install, also while
// Cluster Service does not answer any more.
func TestChannelsAreThoseOfClusterService(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.clusterService.versionRemoved = "4.22"
	y := h.newSubscription(t)
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster"), y.body("cluster.json", `{"properties":{"version":{"id":"4.21"}}}`))
	must.Do(t, y.finishOperations(t.Context()))
	for _, unavailable := range []bool{false, true} {
		h.clusterService.mu.Lock()
		h.clusterService.versionsUnavailable = unavailable
		h.clusterService.mu.Unlock()
		status, _, body := y.do(http.MethodPatch, y.cluster("cluster"), `{"properties":{"version":{"id":"4.22"}}}`)
		if status != http.StatusBadRequest || !strings.Contains(body, "the channel stable-4.22 does not exist") {
			t.Errorf("Cluster Service unavailable: %v: %d %s", unavailable, status, body)
		}
		y.mustDo(http.StatusAccepted, http.MethodPatch, y.cluster("cluster"), `{"properties":{"nodeDrainTimeoutMinutes":5}}`)
		must.Do(t, y.finishOperations(t.Context()))
	}
}
