package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// refusedByQuota reports whether a response is ARM's error of an exceeded quota with the given limit and usage.
func refusedByQuota(t testing.TB, status int, body string, limit, usage int) bool {
	t.Helper()
	refusal := decode[struct {
		Error struct{ Code, Message, Target string }
	}](t, body).Error
	want := fmt.Sprintf("Current Limit: %d, Current Usage: %d, Additional Required: 1, (Minimum) New Limit Required: %d.", limit, usage, usage+1)
	return status == http.StatusConflict && refusal.Code == "QuotaExceeded" && strings.Contains(refusal.Message, want)
}

// createMany creates clusters at the same time and returns the numbers of responses by status.
func (y *testSubscription) createMany(prefix string, n int) map[int]int {
	return concurrently(n, func(i int) int {
		name := fmt.Sprintf("%s-%d", prefix, i)
		status, _, _ := y.do(http.MethodPut, y.cluster(name), y.body("cluster.json", y.platformPatch(name)))
		return status
	})
}

// setQuota sets the quota of the subscription as the backend does for an engineer.
func (y *testSubscription) setQuota(quota int) {
	y.t.Helper()
	must.Do(y.t, database.Retry(context.Background(), func(ctx context.Context) error {
		item, err := y.db.Subscriptions().Get(ctx, database.SubscriptionKey(y.subscription))
		if err != nil {
			return err
		}
		item.Value.ClusterQuota = &database.ClusterQuota{Clusters: &quota}
		batch := y.db.NewBatch(y.subscription)
		database.Replace(batch, item)
		return batch.Commit(ctx)
	}))
}

// TestClusterQuota creates more clusters at the same time than the quota permits, below the default, a raised and a lowered
// quota. The quota is used completely and never exceeded, and deleted clusters return their part.
func TestClusterQuota(t *testing.T) {
	t.Parallel()
	y := newHarness(t, func(c *server.Config) { c.ClustersPerSubscription = 3 }).newSubscription(t)
	refused := func(reason string, limit, usage int) {
		t.Helper()
		if status, _, body := y.do(http.MethodPut, y.cluster("another"), y.body("cluster.json", y.platformPatch("another"))); !refusedByQuota(t, status, body, limit, usage) {
			t.Errorf("%s: %d %s", reason, status, body)
		}
	}
	created := func(reason string, counts map[int]int, want, refused int) {
		t.Helper()
		if counts[http.StatusCreated] != want || counts[http.StatusConflict] != refused {
			t.Errorf("%s: responses %v, want %d clusters and %d refusals", reason, counts, want, refused)
		}
	}
	remove := func(n int) {
		t.Helper()
		for _, cluster := range y.documents().clusters[:n] {
			y.mustDo(http.StatusAccepted, http.MethodDelete, cluster.Value.Cluster.ID, "")
		}
	}
	finish := func() {
		t.Helper()
		must.Do(t, y.finishOperations(t.Context()))
	}

	created("the default", y.createMany("first", 7), 3, 4)
	refused("the default", 3, 3)
	if other := y.newSubscription(t); other.createMany("first", 1)[http.StatusCreated] != 1 {
		t.Error("the quota of another subscription is exceeded")
	}
	finish()
	remove(1)
	refused("a cluster that is being deleted exists", 3, 3)
	finish()
	created("after the deletion", y.createMany("second", 2), 1, 1)

	// An update needs no quota.
	y.setQuota(0)
	finish()
	y.mustDo(http.StatusAccepted, http.MethodPatch, y.documents().clusters[0].Value.Cluster.ID, `{"tags":{"a":"b"}}`)
	finish()
	refused("lowered to nothing", 0, 3)

	y.setQuota(6)
	created("raised", y.createMany("third", 5), 3, 2)
	finish()
	y.setQuota(4)
	refused("lowered below the usage", 4, 6)
	remove(3)
	finish()
	created("lowered, while higher slots are held", y.createMany("fourth", 6), 1, 5)
	refused("lowered", 4, 4)
	// ARM's next description of the subscription keeps the quota.
	y.mustDo(http.StatusOK, http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0", `{"state":"Registered","registrationDate":"later"}`)
	refused("after an update of the subscription", 4, 4)
	y.documents().check(t)
}

// TestPreflightChecksQuota sends deployments with more new clusters than the quota permits.
func TestPreflightChecksQuota(t *testing.T) {
	t.Parallel()
	y := newHarness(t, func(c *server.Config) { c.ClustersPerSubscription = 2 }).newSubscription(t)
	y.createCluster("stored")
	preflight := func(names ...string) string {
		t.Helper()
		var resources []map[string]any
		for _, name := range names {
			resource := map[string]any{}
			must.Do(t, json.Unmarshal([]byte(y.body("cluster.json", y.platformPatch(name))), &resource))
			resource["name"], resource["type"], resource["apiVersion"] = name, "Microsoft.RedHatOpenShift/hcpOpenShiftClusters", "2026-09-01-preview"
			resources = append(resources, resource)
		}
		deployment := must.Get(json.Marshal(map[string]any{"resources": resources}))(t)
		status, _, body := y.do(http.MethodPost, "/subscriptions/"+y.subscription+"/resourceGroups/group/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version=2020-06-01", string(deployment))
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		return body
	}
	if body := preflight("stored", "first"); !strings.Contains(body, `"Succeeded"`) {
		t.Errorf("an existing cluster and one that the quota permits: %s", body)
	}
	for _, names := range [][]string{{"first", "second"}, {"first", "stored", "second"}} {
		body := preflight(names...)
		failure := decode[struct {
			Status string
			Error  struct {
				Code, Target string
				Details      []struct{ Code, Message string }
			}
		}](t, body)
		if failure.Status != "Failed" || failure.Error.Code != "QuotaExceeded" || !strings.HasSuffix(failure.Error.Target, "/second") || len(failure.Error.Details) != 1 ||
			!strings.Contains(failure.Error.Details[0].Message, "Current Limit: 2, Current Usage: 2") {
			t.Errorf("%v: %s", names, body)
		}
	}
	if d := y.documents(); len(d.clusters) != 1 || len(d.reservations) != 4 {
		t.Errorf("after preflights there are %d clusters with %d reservations", len(d.clusters), len(d.reservations))
	}
}
