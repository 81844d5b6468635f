package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// TestOperationsOfAdminHaveRules checks that each operation of admin's OpenAPI document has a row in the authorization table. admin
// refuses the requests of routes without a row.
func TestOperationsOfAdminHaveRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "admin", "openapi", "admin-v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
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
