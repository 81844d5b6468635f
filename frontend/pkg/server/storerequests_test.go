package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestStoreRequests states how many requests to Cosmos DB each request needs, because they are most of its CPU time and its
// request units. A write reads the subscription and the resource, for a node pool also its cluster, and commits one batch. The
// creation of a cluster also reads the reservation of its resource group, the node pools in its subnet, a slot of the quota
// and a fence. An invalid cluster ends before the last two.
func TestStoreRequests(t *testing.T) {
	y := newHarness(t).newSubscription(t)
	cluster, all := y.cluster("cluster"), strings.TrimSuffix(y.cluster(""), "/")
	pool := cluster + "/nodePools/pool"
	for _, step := range []struct {
		reason, method, target, body string
		status                       int
		want                         int64
	}{
		{"invalid cluster", http.MethodPut, cluster, y.body("cluster.json", `{"properties":{"network":{"hostPrefix":30}}}`), http.StatusBadRequest, 4},
		{"creation of a cluster", http.MethodPut, cluster, y.body("cluster.json", "{}"), http.StatusCreated, 7},
		{"read", http.MethodGet, cluster, "", http.StatusOK, 1},
		{"unchanged read", http.MethodGet, cluster, "", http.StatusOK, 1},
		{"list", http.MethodGet, all, "", http.StatusOK, 1},
		{"replacement", http.MethodPut, cluster, y.body("cluster.json", `{"tags":{"team":"b"}}`), http.StatusOK, 3},
		{"patch", http.MethodPatch, cluster, `{"tags":{"team":"c"}}`, http.StatusAccepted, 3},
		{"creation of a node pool", http.MethodPut, pool, y.body("nodepool.json", "{}"), http.StatusCreated, 4},
		{"creation of another node pool", http.MethodPut, cluster + "/nodePools/other", y.body("nodepool.json", "{}"), http.StatusCreated, 4},
		{"patch of a node pool", http.MethodPatch, pool, `{"properties":{"replicas":3}}`, http.StatusAccepted, 4},
		{"deletion of a node pool", http.MethodDelete, pool, "", http.StatusAccepted, 5},
		{"deletion of a cluster", http.MethodDelete, cluster, "", http.StatusAccepted, 3},
	} {
		before := y.storeRequests.Load()
		y.mustDo(step.status, step.method, step.target, step.body)
		if got := y.storeRequests.Load() - before; got != step.want {
			t.Errorf("%s: %d requests to the store, want %d", step.reason, got, step.want)
		}
		must.Do(t, y.finishOperations(context.Background()))
	}
}
