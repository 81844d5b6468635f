package command

import (
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/verdicttest"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// TestListsShowTheVerdict compares the rows of `cluster list --region` and `cluster find` with the table of verdicts.
func TestListsShowTheVerdict(t *testing.T) {
	for reason, c := range verdicttest.Cases() {
		shown := adminv1.Cluster{Name: "demo", Phase: "the phase", Verdict: c.Want}
		for list, row := range map[string]display.Row{"all": clusterRow(shown), "not ready": waitingRow(shown, verdicttest.Now)} {
			if !slices.Contains(row, [2]string{"VERDICT", c.Want}) || slices.ContainsFunc(row, func(column [2]string) bool { return column[1] == "the phase" }) {
				t.Errorf("%s: %s: %q, want %s", reason, list, row, c.Want)
			}
		}
	}
}
