package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// TestEveryRouteHasRule compares the routes with the authorization table: patterns, roles and elevations.
func TestEveryRouteHasRule(t *testing.T) {
	var ruled, routed []string
	for _, rule := range mesh.Rules() {
		if rule.Server != mesh.Admin {
			continue
		}
		for _, grant := range rule.Clients {
			if grant.Client != mesh.Anybody {
				ruled = append(ruled, fmt.Sprintf("%s %s: role %q, elevated %t", grant.Client, rule.Method, grant.Condition.Role, grant.Condition.Elevated))
			}
		}
	}
	for _, route := range server.Routes() {
		routed = append(routed, fmt.Sprintf("engineers %s %s: role %q, elevated %t", route.Method, route.Path, route.Role, route.Mutates))
	}
	slices.Sort(ruled)
	slices.Sort(routed)
	if diff := cmp.Diff(routed, ruled); diff != "" {
		t.Errorf("the rules in internal/mesh/rules_admin.go differ from the routes (-routes +rules):\n%s", diff)
	}
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// send sends a request of an engineer and returns the status of the response. Requests that the handler allows fail later, because
// nothing has the identifiers of their paths.
func send(handler http.Handler, engineer, method, path string) int {
	request := httptest.NewRequest(method, placeholder.ReplaceAllString(path, "none"), strings.NewReader("{}"))
	if engineer != "" {
		request.Header.Set("Authorization", "Bearer "+engineer)
	}
	request.Header.Set(adminv1.IdempotencyKey, "key")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

// isRefusal reports whether a status means that the caller lacks a right.
func isRefusal(status int) bool {
	return status == http.StatusForbidden || status == http.StatusUnauthorized
}

// methods are the methods with which the tests send requests to each path.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

// callers maps the engineers of the harness to their roles, lowest first.
var callers = map[string][]string{"": nil, "nobody": nil, "reader": {"reader"}, "operator": {"reader", "operator"}, "oncall": {"reader", "operator", "break-glass"}}

// TestEngineersHaveOnlyTheirRoles sends each method to each path as each engineer, without an elevation: exactly the requests that
// the table allows pass. So nobody passes an action.
func TestEngineersHaveOnlyTheirRoles(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	paths, patterns := map[string]bool{}, http.NewServeMux()
	allowed := map[string]mesh.Condition{}
	public := map[string]bool{}
	for _, rule := range mesh.Rules() {
		if rule.Server != mesh.Admin {
			continue
		}
		_, path, _ := strings.Cut(rule.Method, " ")
		paths[path] = true
		patterns.Handle(rule.Method, http.NotFoundHandler())
		for _, grant := range rule.Clients {
			if grant.Client == mesh.Anybody {
				public[rule.Method] = true
			} else {
				allowed[rule.Method] = grant.Condition
			}
		}
	}
	handler, passed, refusals := h.another(h.db), 0, 0
	for path := range paths {
		for _, method := range methods {
			_, pattern := patterns.Handler(httptest.NewRequest(method, placeholder.ReplaceAllString(path, "none"), nil))
			for engineer, roles := range callers {
				status := send(handler, engineer, method, path)
				condition, ruled := allowed[pattern]
				if !ruled && !public[pattern] {
					if status != http.StatusMethodNotAllowed && status != http.StatusNotFound {
						t.Errorf("%s %s as %q, which has no rule: status %d", method, path, engineer, status)
					}
					continue
				}
				want := public[pattern] || slices.Contains(roles, condition.Role) && !condition.Elevated
				if isRefusal(status) == want {
					t.Errorf("%s %s as %q: status %d, allowed should be %t", method, path, engineer, status, want)
				}
				if want {
					passed++
				} else {
					refusals++
				}
			}
		}
	}
	if passed < 50 || refusals < 50 {
		t.Errorf("%d requests passed and %d were refused", passed, refusals)
	}
}

// TestRouteWithoutRuleIsRefused removes rules from the table.
func TestRouteWithoutRuleIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, pattern := range []string{"GET /admin/v1/me", "GET /admin/v1/openapi.json"} {
		method, path, _ := strings.Cut(pattern, " ")
		for _, c := range []struct {
			rules []mesh.Rule
			want  bool
		}{
			{mesh.Rules(), false},
			{slices.DeleteFunc(mesh.Rules(), func(r mesh.Rule) bool { return r.Server == mesh.Admin && r.Method == pattern }), true},
		} {
			config := h.config
			config.Rules, config.Metrics = c.rules, newRegistry()
			if got := isRefusal(send(server.New(config), "oncall", method, path)); got != c.want {
				t.Errorf("%s is refused: %t, want %t", pattern, got, c.want)
			}
		}
	}
}
