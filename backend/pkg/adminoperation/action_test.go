package adminoperation

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestEveryActionIsExecuted checks that each declared action has an effect, and that each effect is that of a declared action.
func TestEveryActionIsExecuted(t *testing.T) {
	table := (&Executor{rpc: clusterservicev1.NewClusterServiceClient(nil)}).table()
	for _, a := range adminv1.Actions() {
		if table[a.Name] == nil {
			t.Errorf("the action %s has no effect", a.Name)
		}
		delete(table, a.Name)
	}
	for name := range table {
		t.Errorf("the effect %s has no declared action", name)
	}
}
