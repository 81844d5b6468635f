package server

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// TestEveryRouteHasRule compares the routes with the authorization table.
func TestEveryRouteHasRule(t *testing.T) {
	routed, ruled := []string{mesh.Unrouted}, []string(nil)
	for _, r := range routes() {
		routed = append(routed, r.method+" "+r.pattern)
	}
	for _, rule := range mesh.Rules() {
		if rule.Server == mesh.Frontend {
			ruled = append(ruled, rule.Method)
		}
	}
	slices.Sort(routed)
	slices.Sort(ruled)
	if diff := cmp.Diff(routed, ruled); diff != "" {
		t.Errorf("the rules in internal/mesh/rules_frontend.go differ from the routes (-routes +rules):\n%s", diff)
	}
}
