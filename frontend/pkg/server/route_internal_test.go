package server

import (
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), run with -update to write it:\n%s", file, diff)
	}
}

// TestRoutesFoldOnlyASCII replaces each s and k of each route by the letter outside ASCII that has it as its other case.
func TestRoutesFoldOnlyASCII(t *testing.T) {
	all, replaced := routes(), 0
	for _, r := range all {
		path := strings.NewReplacer("{", "", "}", "").Replace(r.pattern)
		if got := find(all, r.method, &url.URL{Path: strings.ToUpper(path)}); got.route != r {
			t.Errorf("%s %s in upper case has the route %q", r.method, path, got.pattern)
		}
		offset := 1
		for i, part := range r.parts {
			for at, letter := range strings.Trim(part, "{}") {
				other, ok := map[rune]string{'s': "\u017f", 'k': "\u212a", 'S': "\u017f", 'K': "\u212a"}[letter]
				if !ok || r.params[i] >= 0 {
					continue
				}
				replaced++
				changed := path[:offset+at] + other + path[offset+at+1:]
				u := must.Get(url.Parse((&url.URL{Path: changed}).EscapedPath()))(t)
				if got := find(all, r.method, u); got.pattern == r.pattern {
					t.Errorf("%s %s has the route %s", r.method, u, got.pattern)
				}
			}
			offset += len(strings.Trim(part, "{}")) + 1
		}
	}
	if replaced < 100 {
		t.Errorf("only %d letters were replaced", replaced)
	}
	u := must.Get(url.Parse("/subscriptions/11111111-1111-1111-1111-111111111111/re%C5%BFourceGroups/group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/cluster"))(t)
	if got := find(all, http.MethodGet, u); got.pattern != "" {
		t.Errorf("%s has the route %s", u, got.pattern)
	}
}
