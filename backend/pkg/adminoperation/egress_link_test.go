package adminoperation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// TestEgressLinks assigns a link, changes its hosts and removes it. Another cluster is refused in between and in the quarantine, and an operation
// that was requested earlier changes nothing.
func TestEgressLinks(t *testing.T) {
	h := newEnvironment(t)
	h.run(t, adminoperation.Options{})
	cluster := func(uid string) database.AdminTarget {
		return database.AdminTarget{Kind: "cluster", ID: uid, ClusterUID: uid, ResourceID: "/" + uid}
	}
	link := func() *database.EgressLinkDocument {
		t.Helper()
		item, err := h.db.EgressLinks().Get(t.Context(), database.EgressLinkKey(7))
		if err != nil {
			t.Fatal(err)
		}
		return &item.Value
	}
	hosts := func(names ...string) adminv1.EgressLinkParameters {
		return adminv1.EgressLinkParameters{LinkID: "7", Hosts: names}
	}
	removal := database.AdminTarget{Kind: "egressLink", ID: "7", ClusterUID: "a", ResourceID: "/a"}

	h.await(t, h.requestOn(t, "assign", adminv1.ActionEgressLinkSet, cluster("a"), hosts("a.example")), database.AdminSucceeded)
	if got := link(); got.ClusterUID != "a" || got.ResourceID != "/a" || got.Generation != 1 || !cmp.Equal(got.Hosts, []string{"a.example"}) || got.OperationID != "assign" {
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
