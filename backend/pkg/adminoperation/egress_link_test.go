package adminoperation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestEgressLinks assigns a link, changes its hosts and removes it. Another cluster is refused in between and in the quarantine, and an operation
// that was requested earlier changes nothing.
func TestEgressLinks(t *testing.T) {
	h := newEnvironment(t)
	h.run(t, adminoperation.Options{})
	h.cluster(t, "a", linkedID("a"), hub.Succeeded, "")
	h.cluster(t, "b", linkedID("b"), hub.Succeeded, "")
	cluster := func(uid string) database.AdminTarget {
		return database.AdminTarget{Kind: "cluster", ID: uid, ClusterUID: uid, ResourceID: linkedID(uid)}
	}
	link := func() *database.EgressLinkDocument {
		t.Helper()
		item := must.Get(h.db.EgressLinks().Get(t.Context(), database.EgressLinkKey(7)))(t)
		return &item.Value
	}
	hosts := func(names ...string) adminv1.EgressLinkParameters {
		return adminv1.EgressLinkParameters{LinkID: "7", Hosts: names}
	}
	removal := database.AdminTarget{Kind: "egressLink", ID: "7", ClusterUID: "a", ResourceID: linkedID("a")}

	h.await(t, h.requestOn(t, "assign", adminv1.ActionEgressLinkSet, cluster("a"), hosts("a.example")), database.AdminSucceeded)
	if got := link(); got.ClusterUID != "a" || got.ResourceID != linkedID("a") || got.Generation != 1 || !cmp.Equal(got.Hosts, []string{"a.example"}) || got.OperationID != "assign" {
		t.Fatalf("the link is %+v", got)
	}
	h.await(t, h.requestOn(t, "other", adminv1.ActionEgressLinkSet, cluster("b"), hosts()), database.AdminFailed)
	h.await(t, h.requestOn(t, "change", adminv1.ActionEgressLinkSet, cluster("a"), hosts("b.example")), database.AdminSucceeded)
	h.await(t, h.request(t, "late", adminv1.ActionEgressLinkSet, hosts("c.example"), func(o *database.AdminOperationDocument) {
		o.Target, o.StartTime = cluster("a"), o.StartTime.Add(-time.Hour)
	}), database.AdminFailed)
	if got := link(); !cmp.Equal(got.Hosts, []string{"b.example"}) {
		t.Errorf("the hosts are %v", got.Hosts)
	}
	elsewhere := removal
	elsewhere.ClusterUID = "b"
	h.await(t, h.requestOn(t, "remove-elsewhere", adminv1.ActionEgressLinkDelete, elsewhere, nil), database.AdminFailed)
	h.await(t, h.requestOn(t, "remove", adminv1.ActionEgressLinkDelete, removal, nil), database.AdminSucceeded)
	if got := link(); got.RemovedTime == nil || len(got.Hosts) > 0 || got.OperationID != "remove" {
		t.Errorf("the removed link is %+v", got)
	}
	h.await(t, h.requestOn(t, "quarantine", adminv1.ActionEgressLinkSet, cluster("b"), hosts()), database.AdminFailed)
	h.await(t, h.requestOn(t, "again", adminv1.ActionEgressLinkSet, cluster("a"), hosts()), database.AdminSucceeded)
	if got := link(); got.RemovedTime != nil || got.Generation != 2 {
		t.Errorf("the link that was assigned again is %+v", got)
	}
	unknown := removal
	unknown.ID = "8"
	h.await(t, h.requestOn(t, "unknown", adminv1.ActionEgressLinkDelete, unknown, nil), database.AdminFailed)
}

// TestClustersThatAreDeletedGetNoLink requests a link for clusters that are being deleted or are gone. An assignment that the operation made before
// a crash, while the deletion began, is withdrawn. A link that the cluster had before stays until the deletion removes it.
func TestClustersThatAreDeletedGetNoLink(t *testing.T) {
	for name, tc := range map[string]struct {
		state hub.ProvisioningState // empty if there is no document
		// before is the operation that assigned the link before, if any.
		before string
		// removed reports whether the link is removed; nil if there is none.
		removed *bool
	}{
		"being deleted":                     {state: hub.Deleting},
		"gone":                              {},
		"deleted while the link was set":    {state: hub.Deleting, before: "set", removed: new(true)},
		"gone since the link was set":       {before: "set", removed: new(true)},
		"being deleted with an earlier one": {state: hub.Deleting, before: "earlier", removed: new(false)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newEnvironment(t)
			if tc.state != "" {
				h.cluster(t, "a", linkedID("a"), tc.state, "")
			}
			if tc.before != "" {
				earlier := time.Now().Add(-time.Minute)
				link := database.EgressLinkDocument{ClusterUID: "a", ResourceID: linkedID("a"), OperationID: tc.before, RequestTime: earlier}
				must.Get(h.db.AssignEgressLink(t.Context(), 7, link, earlier))(t)
			}
			h.run(t, adminoperation.Options{})
			target := database.AdminTarget{Kind: "cluster", ID: "a", ClusterUID: "a", ResourceID: linkedID("a")}
			h.await(t, h.requestOn(t, "set", adminv1.ActionEgressLinkSet, target, adminv1.EgressLinkParameters{LinkID: "7"}), database.AdminFailed)
			item, err := h.db.EgressLinks().Find(t.Context(), database.EgressLinkKey(7))
			if err != nil || (item == nil) != (tc.removed == nil) {
				t.Fatalf("the link is %+v, %v", item, err)
			}
			if item != nil && (item.Value.RemovedTime != nil) != *tc.removed {
				t.Errorf("the link is %+v", item.Value)
			}
		})
	}
}

// linkedID returns the resource ID of a cluster with links.
func linkedID(name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/links/providers/" + hub.ClusterResourceType + "/" + name
}

// cluster creates the document of a cluster.
func (h *environment) cluster(t *testing.T, uid, resourceID string, state hub.ProvisioningState, active string) {
	t.Helper()
	create(t, h, h.db.Clusters(), must.Get(database.ResourceKey(resourceID))(t), database.ClusterDocument{UID: uid, Generation: 1, ProvisioningState: state, ActiveOperationID: active,
		Cluster: hub.Cluster{Resource: hub.Resource{ID: resourceID, Name: uid, Type: hub.ClusterResourceType, Location: "westus3"}}})
}
