package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/traffic"
)

// maxErrorBytes is more than any error response of TestErrorsAreLimited needs.
const maxErrorBytes = 64 << 10

// TestErrorsAreLimited sends bodies with far too many malformed entries: for each list and map that a body can set, of each
// resource type at each api-version. The error has the field's own violation and at most one detail more than the limit.
func TestErrorsAreLimited(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // the bodies are large
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	for _, api := range version.All() {
		for target, entries := range map[string][]shape.Entry{
			y.cluster("new"):                            shape.Bind[hub.Cluster, hub.ClusterStatus](api.Cluster).Entries(),
			y.cluster("cluster") + "/nodePools/new":     shape.Bind[hub.NodePool, hub.NodePoolStatus](api.NodePool).Entries(),
			y.cluster("cluster") + "/externalAuths/new": shape.Bind[hub.ExternalAuth, hub.ExternalAuthStatus](api.ExternalAuth).Entries(),
		} {
			for _, entry := range entries {
				if entry.AtMost == 0 {
					continue
				}
				want := fmt.Sprintf("must have at most %d items", entry.AtMost)
				for kind, item := range map[string]any{"wrong type": 1, "control character": "\x00", "empty text": "", "empty object": map[string]any{}} {
					body := bodyWith(t, entry.Path, many(entry.Type, 5000, item))
					status, header, answer := y.do(http.MethodPut, target+"?api-version="+api.Name, body)
					answerable(t, status, header, answer)
					found := errorsOf(t, answer)
					if status != http.StatusBadRequest || len(found) > apierror.MaxViolations+1 || len(answer) > maxErrorBytes {
						t.Errorf("%s, %s of %s: status %d with %d errors in %d bytes", api.Name, kind, entry.Path, status, len(found), len(answer))
					}
					path := strings.ReplaceAll(entry.Path, "[]", "[0]")
					ignored := entry.Type == "string map" && item == "" // entries that DropEmpty removes do not count
					if tooMany := func(e fieldError) bool { return e.Target == path && strings.HasSuffix(e.Message, want) }; !ignored && !slices.ContainsFunc(found, tooMany) {
						t.Errorf("%s, %s of %s: no error with %q: %.500s", api.Name, kind, entry.Path, want, answer)
					}
				}
			}
		}
	}
}

// TestManyWrongTagsAreOneError sends 100,000 tags with wrong values, as a creation, a replacement and a change.
func TestManyWrongTagsAreOneError(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // the bodies are large
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	for name, value := range map[string]any{"wrong type": 1, "control character": "\x00", "experimental": "x"} {
		prefix, tags := "tag-", map[string]any{}
		if name == "experimental" {
			prefix = "aro-hcp.experimental.cluster."
		}
		for i := range 100_000 {
			tags[fmt.Sprintf(prefix+"%d", i)] = value
		}
		content := must.Get(json.Marshal(map[string]any{"tags": tags}))(t)
		for _, request := range [][3]string{
			{http.MethodPut, y.cluster("new"), y.body("cluster.json", string(content))},
			{http.MethodPut, y.cluster("cluster"), y.body("cluster.json", string(content))},
			{http.MethodPatch, y.cluster("cluster"), string(content)},
		} {
			status, _, answer := y.do(request[0], request[1], request[2])
			var own []fieldError
			for _, e := range errorsOf(t, answer) {
				if strings.HasPrefix(e.Target, "tags") {
					own = append(own, e)
				}
			}
			if status != http.StatusBadRequest || len(answer) > maxErrorBytes || len(own) != 1 || own[0].Target != "tags" {
				t.Errorf("%s, %s %s: status %d with %d bytes: %.1000s", name, request[0], request[1], status, len(answer), answer)
			}
		}
	}
}

// TestErrorsOfNestedListsAreLimited sends lists that have as many items as they may, so that each item is validated.
func TestErrorsOfNestedListsAreLimited(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // the bodies are large
	y := newHarness(t).newSubscription(t)
	for kind, item := range map[string]any{"wrong type": 1, "empty": "", "invalid": "A"} {
		mirrors := make([]any, hub.MaxImageDigestMirrors)
		for i := range mirrors {
			mirrors[i] = map[string]any{"source": "quay.io/a", "mirrors": many("strings", hub.MaxMirrors, item)}
		}
		body := bodyWith(t, "properties.imageDigestMirrors", mirrors)
		for name, response := range map[string]func() (int, http.Header, string){
			"PUT": func() (int, http.Header, string) { return y.do(http.MethodPut, y.cluster("new"), body) },
			"preflight": func() (int, http.Header, string) {
				resource := strings.Replace(body, "{", `{"type":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters","name":"new","apiVersion":"2026-09-01-preview",`, 1)
				return y.do(http.MethodPost, "/subscriptions/"+y.subscription+"/resourceGroups/group/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version=2020-06-01",
					`{"resources":[`+strings.Repeat(resource+",", 5)+resource+`]}`)
			},
		} {
			_, _, answer := response()
			found := errorsOf(t, answer)
			last := found[len(found)-1]
			if name == "PUT" && (len(found) != apierror.MaxViolations+1 || last.Target != "" || !strings.Contains(last.Message, "more errors")) {
				t.Errorf("%s: %d errors, the last is %+v", kind, len(found), last)
			}
			// A preflight has one rejected resource, and a detail that states that the others were not validated.
			if name == "preflight" && (len(found) != 2 || len(found[0].Details) != apierror.MaxViolations+1 || !strings.Contains(last.Message, "not validated")) {
				t.Errorf("%s: the preflight has %d errors, the last is %+v", kind, len(found), last)
			}
			if len(answer) > maxErrorBytes {
				t.Errorf("%s: %s responds with %d bytes", kind, name, len(answer))
			}
		}
	}
}

// many returns a list with count times an item, or a map with it under count keys.
func many(entryType string, count int, item any) any {
	if entryType == "strings" || entryType == "list" {
		return slices.Repeat([]any{item}, count)
	}
	entries := map[string]any{}
	for i := range count {
		entries[fmt.Sprintf("key-%d", i)] = item
	}
	return entries
}

// bodyWith returns a body that has a value at the path of a shape.Entry, and nothing else.
func bodyWith(t testing.TB, path string, value any) string {
	t.Helper()
	names := strings.Split(path, ".")
	for _, name := range slices.Backward(names) {
		if list, isList := strings.CutSuffix(name, "[]"); isList {
			name, value = list, []any{value}
		}
		value = map[string]any{name: value}
	}
	content := must.Get(json.Marshal(value))(t)
	return string(content)
}

// errorsOf returns the details of an error response, or the error itself if it has none.
func errorsOf(t testing.TB, answer string) []fieldError {
	t.Helper()
	e := decode[struct{ Error fieldError }](t, answer).Error
	if len(e.Details) == 0 {
		return []fieldError{e}
	}
	return e.Details
}
