package delivery

import (
	"testing"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
)

func reportOf(version int64, agent, sequence string, deleted bool) report {
	return report{&maestro.Event{Version: version, Agent: agent, Sequence: sequence}, &feedback.Observed{Deleted: deleted}}
}

// TestReportOfDeletionIsNotReplaced covers a defect: the status of a late creation replaced the report that the work was deleted,
// and the deletion was stuck until it was repeated.
func TestReportOfDeletionIsNotReplaced(t *testing.T) {
	var waiting []report
	for _, r := range []report{reportOf(1, "a", "5", false), reportOf(1, "a", "4", false), reportOf(0, "m", "0", true), reportOf(1, "a", "7", false), reportOf(1, "a", "8", false)} {
		waiting = enqueue(waiting, r)
	}
	if len(waiting) != 3 || waiting[0].Sequence != "5" || !waiting[1].seen.Deleted || waiting[2].Sequence != "8" {
		t.Errorf("%d reports wait: %v", len(waiting), waiting)
	}
	for range 100 {
		waiting = enqueue(waiting, reportOf(0, "m", "0", true))
		waiting = enqueue(waiting, reportOf(1, "a", "9", false))
	}
	if len(waiting) > maxReports {
		t.Errorf("%d reports wait", len(waiting))
	}
}

func TestStatusOrder(t *testing.T) {
	tests := map[string]struct {
		reason string
		held   report
		comes  report
		want   string
	}{
		"Newer":         {"a later status of the agent", reportOf(1, "a", "9", false), reportOf(1, "a", "10", false), "stored"},
		"Same":          {"a repeated status is harmless", reportOf(1, "a", "9", false), reportOf(1, "a", "9", false), "stored"},
		"Older":         {"replicas may see statuses in another order", reportOf(1, "a", "10", false), reportOf(1, "a", "9", false), "stale"},
		"Older version": {"a status of content that was replaced", reportOf(2, "a", "1", false), reportOf(1, "a", "9", false), "stale"},
		"Another agent": {"sequences of agents do not compare", reportOf(1, "a", "10", false), reportOf(1, "b", "2", false), "stored"},
		"Lost":          {"Maestro reports a deletion that nobody requested", reportOf(1, "a", "1", false), reportOf(0, "m", "0", true), "lost"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := &fleet.Work{Published: 1, Desired: 1, Sequence: statusOrder{tc.held.Version, tc.held.Agent, tc.held.Sequence}.String()}
			if got := storeStatus(w, tc.comes); got != tc.want {
				t.Errorf("%s, want %s: %s", got, tc.want, tc.reason)
			}
			if tc.want == "lost" && (w.Published != 0 || !w.Due()) {
				t.Error("a lost bundle is not due")
			}
		})
	}
}
