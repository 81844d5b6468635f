package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// storedCluster returns a cluster's document.
func (y *testSubscription) storedCluster(name string) database.ClusterDocument {
	y.t.Helper()
	item := must.Get(y.db.Clusters().Get(context.Background(), database.Key{SubscriptionID: y.subscription, ResourceID: y.cluster(name)}))(y.t)
	return item.Value
}

// TestFullVersionIsPinnedUntilTheNextUpdate: a full version pins the release, and a later update without one removes the pin.
func TestFullVersionIsPinnedUntilTheNextUpdate(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.mustDo(http.StatusOK, http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0",
		`{"state":"Registered","registrationDate":"now","properties":{"registeredFeatures":[{"name":"`+validation.ExperimentalFeature+`","state":"Registered"}]}}`)
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster"), y.body("cluster.json", `{"properties":{"version":{"id":"4.21.1"}}}`))
	for _, step := range []struct{ patch, pin string }{
		{`{"properties":{"version":{"id":"4.21.4"}}}`, "4.21.4"},
		{`{"tags":{"team":"b"}}`, ""},
		{`{"tags":{"` + experiment.ExactVersion + `":"4.21.4"},"properties":{"version":{"id":"4.21.1"}}}`, "4.21.4"},
		{`{"properties":{"nodeDrainTimeoutMinutes":5}}`, "4.21.4"},
		{`{"tags":{"` + experiment.ExactVersion + `":null}}`, ""},
	} {
		must.Do(t, y.finishOperations(context.Background()))
		y.mustDo(http.StatusAccepted, http.MethodPatch, y.cluster("cluster"), step.patch)
		cluster := y.storedCluster("cluster").Cluster
		if id, pin := cluster.Properties.Version.ID, cluster.Experiments[experiment.ExactVersion]; id != "4.21" || pin != step.pin {
			t.Errorf("after %s: %s is pinned to %q, want %q", step.patch, id, pin, step.pin)
		}
	}
}

// TestUpgradeDoesNotStrandNodePools: a cluster cannot be upgraded to a version that is more than two minor versions above one
// of its node pools.
func TestUpgradeDoesNotStrandNodePools(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(c *server.Config) {
		offer := *c.Offer
		offer.ClusterVersions = append(slices.Clone(offer.ClusterVersions), "4.23")
		c.Offer, c.Rules = &offer, validation.NewRules(&offer, location)
	})
	// Without the list of versions, the channel stable-4.23 may exist.
	h.clusterService.versionsUnavailable = true
	y := h.newSubscription(t)
	finish := func() {
		must.Do(t, y.finishOperations(context.Background()))
	}
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster"), y.body("cluster.json", `{"properties":{"version":{"id":"4.22"}}}`))
	finish()
	pool := y.cluster("cluster") + "/nodePools/"
	y.mustDo(http.StatusCreated, http.MethodPut, pool+"old", y.body("nodepool.json", `{"properties":{"version":{"id":"4.20.8"}}}`))
	finish()
	for method, body := range map[string]string{http.MethodPatch: `{"properties":{"version":{"id":"4.23"}}}`, http.MethodPut: y.body("cluster.json", `{"properties":{"version":{"id":"4.23"}}}`)} {
		status, _, answer := y.do(method, y.cluster("cluster"), body)
		if status != http.StatusBadRequest || !strings.Contains(answer, `"target":"properties.version.id"`) || !strings.Contains(answer, "upgrade old (4.20.8) first") {
			t.Errorf("%s: status %d with %s", method, status, answer)
		}
	}
	y.mustDo(http.StatusAccepted, http.MethodPatch, y.cluster("cluster"), `{"properties":{"nodeDrainTimeoutMinutes":5}}`)
	finish()
	y.mustDo(http.StatusAccepted, http.MethodPatch, pool+"old", `{"properties":{"version":{"id":"4.21.1"}}}`)
	finish()
	y.mustDo(http.StatusAccepted, http.MethodPatch, y.cluster("cluster"), `{"properties":{"version":{"id":"4.23"}}}`)
}
