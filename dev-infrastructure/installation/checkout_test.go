package installation_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

// TestCopyOfCheckoutIsComplete: the copy that tests change has all pipelines of the topology and all charts.
func TestCopyOfCheckoutIsComplete(t *testing.T) {
	t.Parallel()
	root := charttest.Root(t)
	copied := copyOfCheckout(t, root)
	if _, err := definition.Open(copied, charttest.Configuration(t).Schema); err != nil {
		t.Error(err)
	}
	charts := 0
	for _, pattern := range []string{"*/deploy", "*/*/deploy"} {
		folders := must.Get(filepath.Glob(filepath.Join(root, pattern)))(t)
		for _, folder := range folders {
			if _, err := os.Stat(filepath.Join(folder, "Chart.yaml")); err != nil {
				continue
			}
			charts++
			relative, err := filepath.Rel(root, folder)
			if err == nil {
				_, err = chart.Load(filepath.Join(copied, relative))
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
	if charts < 11 {
		t.Errorf("only %d charts were compared", charts)
	}
}
