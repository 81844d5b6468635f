package fleet_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// TestWaitsForConditions checks the times of waits for conditions of a NodePool. Times are seconds after Maestro accepted the request.
func TestWaitsForConditions(t *testing.T) {
	const machines = feedback.AllMachines
	second := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	since := func(status string, s int) feedback.Condition {
		return feedback.Condition{Status: status, Since: second(s)}
	}
	for name, tc := range map[string]struct {
		reason     string
		condition  string
		was, is    feedback.Condition
		update     bool
		want       bool
		begin, end int
	}{
		"Becomes true":         {reason: "the transition times are those of the wait", condition: machines, was: since("False", 1), is: since("True", 7), want: true, begin: 1, end: 7},
		"Was unknown":          {reason: "it was not true", condition: machines, was: since("Unknown", 2), is: since("True", 7), want: true, begin: 2, end: 7},
		"First report":         {reason: "the agent applied the object at 3", condition: machines, is: since("True", 7), want: true, begin: 3, end: 7},
		"Clock moved back":     {reason: "no duration is negative", condition: machines, was: since("False", 9), is: since("True", 7), want: true, begin: 7, end: 7},
		"No time before":       {reason: "an earlier release stored the status", condition: machines, was: feedback.Condition{Status: "False"}, is: since("True", 7), want: true, begin: 7, end: 7},
		"No time":              {reason: "the time is malformed", condition: machines, was: since("False", 1), is: feedback.Condition{Status: "True"}},
		"Still true":           {reason: "nothing was awaited", condition: machines, was: since("True", 1), is: since("True", 1)},
		"Becomes false":        {reason: "the wait begins", condition: machines, was: since("True", 1), is: since("False", 7)},
		"Not awaited":          {reason: "no request waits for it", condition: feedback.VersionSkew, was: since("False", 1), is: since("True", 7)},
		"Rollout ends":         {reason: "false is awaited", condition: feedback.UpdatingVersion, was: since("True", 1), is: since("False", 7), want: true, begin: 1, end: 7},
		"No rollout":           {reason: "there was none", condition: feedback.UpdatingVersion, is: since("False", 7)},
		"Update":               {reason: "the condition was false for a minute before", condition: machines, update: true, was: since("False", -60), is: since("True", 7), want: true, begin: 0, end: 7},
		"Update, first report": {reason: "it may have been true for long", condition: machines, update: true, is: since("True", 7)},
		"Update, slow clock": {reason: "the clock of the management cluster is a minute late", condition: machines, update: true, was: since("False", -60), is: since("True", -50), want: true,
			begin: -50, end: -50},
	} {
		t.Run(name, func(t *testing.T) {
			before := placed(t)
			pool := before.Pools[0]
			if pool.Trace = "trace"; tc.update {
				pool.Generation, pool.Status.ObservedGeneration = 2, 1
			}
			work := before.Work(fleet.NodePoolWork, poolUID)
			if tc.was.Status != "" {
				work.Observed.Conditions = map[string]feedback.Condition{tc.condition: tc.was}
			}
			after := before.Clone()
			after.Work(fleet.NodePoolWork, poolUID).Observed = feedback.Observed{Applied: since("True", 3), Conditions: map[string]feedback.Condition{tc.condition: tc.is}}
			var want []fleet.Wait
			if tc.want {
				want = []fleet.Wait{{Trace: "trace", ClusterUID: clusterUID, Layer: "NodePool", State: tc.condition, Work: work.Name, Shard: "mgmt-1", Begin: second(tc.begin), End: second(tc.end)}}
			}
			if diff := cmp.Diff(want, fleet.EndedWaits(before, after, start)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			pool.Trace = ""
			if waits := fleet.EndedWaits(before, after, start); waits != nil {
				t.Errorf("a request without a trace has %v", waits)
			}
		})
	}
}
