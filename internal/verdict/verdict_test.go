package verdict_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/verdicttest"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

func TestVerdicts(t *testing.T) {
	for reason, c := range verdicttest.Cases() {
		t.Run(reason, func(t *testing.T) {
			var children []verdict.Resource
			if c.Pool != nil {
				children = append(children, verdict.NodePool(c.Pool))
				if got := verdict.Of(verdicttest.Now, children[0]).State; got != c.WantPool {
					t.Errorf("node pool: %s, want %s", got, c.WantPool)
				}
			}
			for caller, got := range map[string]verdict.Verdict{
				"with children": verdict.Of(verdicttest.Now, verdict.Cluster(c.Cluster), children...),
				"as reported":   verdict.OfCluster(verdicttest.Now, c.Reported()),
			} {
				if diff := cmp.Diff(c.Concern, got.Concern); got.State != c.Want || diff != "" {
					t.Errorf("%s: %s, want %s (-want +got):\n%s", caller, got.State, c.Want, diff)
				}
			}
		})
	}
}

// TestPhasesOfOtherReleases keeps what a newer Cluster Service reports.
func TestPhasesOfOtherReleases(t *testing.T) {
	for phase, want := range map[string]string{"AWAITING_SECRET": "AwaitingSecret", "17": "17", "": ""} {
		if got := verdict.Of(verdicttest.Now, verdict.Resource{Phase: phase}).State; got != want {
			t.Errorf("phase %q: %q, want %q", phase, got, want)
		}
	}
}
