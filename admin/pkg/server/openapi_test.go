package server_test

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite the OpenAPI document and the list of routes")

const routesPage = `# Routes of admin

Paths are below ` + "`/admin/v1`" + `. The [OpenAPI document](../openapi/admin-v1.json) has parameters and bodies. ` + "`{cluster}`" + ` is any identifier
that matches one cluster. A route that is not a GET requires an active elevation for the class of its action, except those of elevations and silences.
Every route requires the [claims](../../docs/operators/claims.md) of its role, unless the table gives a reason. A body is rejected if a field is unknown, has another casing or is given twice, or if the action has none. This page is generated: ` + "`go test ./admin/pkg/server -run Documents -update`" + `.

`

// TestDocumentsMatchRoutes compares the committed OpenAPI document and list of routes with the route table.
func TestDocumentsMatchRoutes(t *testing.T) {
	for path, want := range map[string]string{
		"../../openapi/admin-v1.json": string(server.Document(server.Routes())),
		"../../docs/routes.md":        routesPage + server.RouteTable(server.Routes()),
	} {
		if *update {
			must.Do(t, os.WriteFile(path, []byte(want), 0o644))
		}
		got := must.Get(os.ReadFile(path))(t)
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is out of date; run `go test ./admin/pkg/server -run Documents -update` (-want +got):\n%s", path, diff)
		}
	}
}

// TestEveryActionHasARoute checks that the routes that create admin operations are exactly the actions that the backend
// executes.
func TestEveryActionHasARoute(t *testing.T) {
	var got, want []string
	for _, a := range adminv1.Actions() {
		want = append(want, a.Name)
	}
	for _, route := range server.Routes() {
		// Ending an elevation creates operations without an active elevation.
		if route.Mutates || route.Name == adminv1.ActionElevationEnd {
			got = append(got, route.Name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("routes %v, want %v", got, want)
	}
}
