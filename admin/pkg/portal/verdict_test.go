package portal

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/verdicttest"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// TestBadgesFollowTheVerdict compares the badges of lists and pages with the table of verdicts: each state has a meaning, and only Ready
// looks like success.
func TestBadgesFollowTheVerdict(t *testing.T) {
	for reason, c := range verdicttest.Cases() {
		badge := statusOf(c.Want)
		if success := badge.Kind == "success"; badge.Kind == "neutral" || success != (c.Want == verdict.Ready) {
			t.Errorf("%s: %s is shown as %s", reason, c.Want, badge.Kind)
		}
	}
}
