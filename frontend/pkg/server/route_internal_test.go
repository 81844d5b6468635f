package server

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var updateRoutes = flag.Bool("update", false, "update docs/routes.md")

// TestRoutesDocument: docs/routes.md lists all routes.
func TestRoutesDocument(t *testing.T) {
	const file = "../../docs/routes.md"
	apiVersions := map[versioning]string{providerVersion: "the provider's", noVersion: "none"}
	var rows []string
	for _, r := range routes() {
		deployable := ""
		if r.preflight != nil {
			deployable = "yes"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", r.pattern, r.method, apiVersions[r.versioning], deployable))
	}
	slices.Sort(rows)
	got := "# Routes\n\nThe routes of the frontend. `go test ./pkg/server -run TestRoutesDocument -update` writes this file. A preflight can contain the\n" +
		"resources of routes with \"yes\" in the last column.\n\n| path | method | api-version | preflight |\n|---|---|---|---|\n" + strings.Join(rows, "")
	if *updateRoutes {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), run with -update to write it:\n%s", file, diff)
	}
}
