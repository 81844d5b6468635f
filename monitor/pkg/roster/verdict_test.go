package roster

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/verdicttest"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// TestPoolsFollowTheVerdict compares the node pools that monitor judges with the table of verdicts: it wants no nodes of a node pool in
// deletion, and a node pool that is ready has no problem.
func TestPoolsFollowTheVerdict(t *testing.T) {
	t.Parallel()
	for reason, c := range verdicttest.Cases() {
		if c.Pool == nil {
			continue
		}
		nodes := poolOf(c.Pool).nodes
		if wants, want := nodes.Wanted > 0, c.WantPool != verdict.Deleting; wants != want {
			t.Errorf("%s: wants nodes: %t, want %t", reason, wants, want)
		}
		if problem, want := nodes.Healthy.Status != "", c.WantPool != verdict.Ready && c.WantPool != verdict.Deleting; problem != want {
			t.Errorf("%s: a problem: %t, want %t", reason, problem, want)
		}
	}
}
