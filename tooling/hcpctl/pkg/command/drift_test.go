package command

import (
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestDriftList checks that repaired removals are listed below the differences, and without a difference.
func TestDriftList(t *testing.T) {
	a := newSREs(t)
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	list := adminv1.DriftList{Desired: 3, InFleet: 3, RepairedRemovals: []adminv1.RepairedRemoval{
		{Kind: "NodePool", Namespace: "ocm-local-x", Name: "workers", Shard: "mgmt-1", ResourceID: deletingID, Removed: at, AppliedAgain: at.Add(2 * time.Second)},
		{Kind: "Namespace", Name: "ocm-local-x", Shard: "mgmt-1", ResourceID: deletingID, Removed: at.Add(-time.Hour), AppliedAgain: at.Add(-59 * time.Minute)},
	}}
	a.shown = map[string]any{"/drift": list}
	out := must.Get(a.hcpctl(t, "drift", "list"))(t)
	golden(t, "drift-list.txt", out)
}
