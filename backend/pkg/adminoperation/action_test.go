package adminoperation

import (
	"maps"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestEveryActionIsExecuted checks that the table holds exactly the actions for which admin has routes.
func TestEveryActionIsExecuted(t *testing.T) {
	table := (&Executor{rpc: clusterservicev1.NewClusterServiceClient(nil)}).table()
	want, got := slices.Sorted(slices.Values(adminv1.Actions())), slices.Sorted(maps.Keys(table))
	if !slices.Equal(got, want) {
		t.Errorf("the table has the actions %v, want %v", got, want)
	}
}
