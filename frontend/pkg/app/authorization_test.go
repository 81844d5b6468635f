package app_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/openapi"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var placeholder = regexp.MustCompile(`\{[a-zA-Z]+\}`)

// requests returns each method for each path of the authorization table and of the OpenAPI documents.
func requests(t *testing.T) []string {
	t.Helper()
	paths := map[string]bool{}
	for _, rule := range mesh.Rules() {
		if rule.Server == mesh.Frontend {
			_, path, routed := strings.Cut(rule.Method, " ")
			if !routed {
				path = "/no/route"
			}
			paths[path] = true
		}
	}
	for _, version := range openapi.Versions() {
		operations := must.Get(openapi.Operations(version))(t)
		for _, operation := range operations {
			paths[operation.Path] = true
		}
	}
	var all []string
	for path := range paths {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete, http.MethodOptions} {
			all = append(all, method+" "+placeholder.ReplaceAllString(path, "11111111-1111-1111-1111-111111111111"))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestOnlyFrontDoorUsesRoutes sends each method to each path as each workload, in both modes of identity: exactly the requests of ARM's front
// door pass.
func TestOnlyFrontDoorUsesRoutes(t *testing.T) {
	for _, mode := range meshtest.Modes() {
		t.Run(string(mode), func(t *testing.T) { testOnlyFrontDoor(t, mode) })
	}
}

func testOnlyFrontDoor(t *testing.T, mode meshtest.Mode) {
	region := meshtest.New(t)
	r := serve(t, func(o *app.Options) { o.Mesh = region.Options(mode, mesh.Frontend) })
	base := "https://" + region.Front(mode, mesh.Frontend, strings.TrimPrefix(r.url, "https://"))
	all := requests(t)
	if len(all) < 100 {
		t.Fatalf("only %d requests", len(all))
	}
	var want []string
	for _, request := range all {
		want = append(want, string(mesh.ARMFrontDoor)+" "+request)
	}
	if diff := cmp.Diff(want, region.AllowedRequests(mesh.Frontend, base, all)); diff != "" {
		t.Errorf("allowed requests (-want +got):\n%s", diff)
	}
}
