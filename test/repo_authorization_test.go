package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestOperationsOfAdminHaveRules checks that each operation of admin's OpenAPI document has a row in the authorization table. admin
// refuses the requests of routes without a row.
func TestOperationsOfAdminHaveRules(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join("..", "admin", "openapi", "admin-v1.json")))(t)
	var document struct{ Paths map[string]map[string]any }
	must.Do(t, json.Unmarshal(text, &document))
	ruled := map[string]bool{}
	for _, rule := range mesh.Rules() {
		ruled[rule.Method] = ruled[rule.Method] || rule.Server == mesh.Admin && rule.Protocol == mesh.HTTP && len(rule.Clients) > 0
	}
	if len(document.Paths) == 0 {
		t.Fatal("the document has no paths")
	}
	for path, operations := range document.Paths {
		for method := range operations {
			if pattern := strings.ToUpper(method) + " " + path; !ruled[pattern] {
				t.Errorf("%s has no rule; add it to internal/mesh/rules_admin.go and run `go test ./tooling/mesh-policies/pkg/istiopolicy -update`", pattern)
			}
		}
	}
}
