package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// BenchmarkPattern measures how long the frontend takes to find the row of a request in the authorization table.
func BenchmarkPattern(b *testing.B) {
	s := &Server{routes: routes()}
	for name, path := range map[string]string{
		"NodePool": "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/cluster/nodePools/pool",
		"Unrouted": "/no/route",
	} {
		b.Run(name, func(b *testing.B) {
			request := httptest.NewRequest(http.MethodGet, path, nil)
			for b.Loop() {
				if (s.Pattern(request) == mesh.Unrouted) != (name == "Unrouted") {
					b.Fatal(s.Pattern(request))
				}
			}
		})
	}
}
