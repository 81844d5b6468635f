package lookup

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/internal/testing/verdicttest"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// TestClustersHaveTheVerdict compares the clusters of lists and pages with the table of verdicts.
func TestClustersHaveTheVerdict(t *testing.T) {
	for reason, c := range verdicttest.Cases() {
		if c.Want == verdict.Paused {
			c.Cluster.Overrides.Pause.Until = timestamppb.New(time.Now().Add(time.Hour))
		}
		got := (&Finder{environment: "test"}).FromFleet(c.Reported())
		if got.Verdict != c.Want {
			t.Errorf("%s: %s, want %s", reason, got.Verdict, c.Want)
		}
		if waits := got.Concern != nil; waits != (c.Concern.Layer != "") {
			t.Errorf("%s: a concern: %t, want %t", reason, waits, !waits)
		}
	}
}
