package release_test

import (
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

// TestControlPlaneComponents checks that the list is sorted and has no duplicates.
func TestControlPlaneComponents(t *testing.T) {
	names := release.ControlPlaneComponents()
	if sorted := slices.Compact(slices.Sorted(slices.Values(names))); !slices.Equal(names, sorted) {
		t.Errorf("%v, want %v", names, sorted)
	}
}
