package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestFieldsOfResourceAreGivenOnce reads a resource that has a field twice. ARM would receive only one of the values.
func TestFieldsOfResourceAreGivenOnce(t *testing.T) {
	for name, content := range map[string]string{"a.json": `{"properties":{"version":1,"version":2}}`, "a.yaml": "properties:\n  version: 1\n  version: 2\n"} {
		path := filepath.Join(t.TempDir(), name)
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		if body, err := readBody(path); err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("%s: %v, %v, want an error that names the field", name, body, err)
		}
	}
}
