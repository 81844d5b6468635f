package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
)

// TestDocumentedErrorsAreTested checks that each error in docs/deploy/charts.md is one that a test expects.
func TestDocumentedErrorsAreTested(t *testing.T) {
	page := must.Get(os.ReadFile(filepath.Join(charttest.Root(t), "docs/deploy/charts.md")))(t)
	var expected strings.Builder
	for _, pattern := range []string{"*_test.go", "../../cmd/charts/*_test.go"} {
		files := must.Get(filepath.Glob(pattern))(t)
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			expected.Write(text)
		}
	}
	_, text, _ := strings.Cut(string(page), "## Mistakes and their errors")
	documented := regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(text, -1)
	if len(documented) < 5 {
		t.Errorf("the page shows only %d errors", len(documented))
	}
	for _, line := range documented {
		if !strings.Contains(expected.String(), line[1]) {
			t.Errorf("no test expects the documented error %q", line[1])
		}
	}
}
