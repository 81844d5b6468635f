package dump

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// TestOutdatedStatesAreUnknown: a recorded state says nothing while no replica of monitor observes the cluster.
func TestOutdatedStatesAreUnknown(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 4, 0, 0, 0, time.UTC)
	first := adminv1.JournalEntry{Time: now.Add(-time.Hour), Event: adminv1.JournalAPI, To: adminv1.HealthAvailable}
	second := adminv1.JournalEntry{Time: now.Add(-time.Minute), Event: adminv1.JournalAPI, From: adminv1.HealthAvailable, To: adminv1.HealthUnavailable}
	stated := adminv1.Health{API: adminv1.HealthUnavailable, Since: now.Add(-time.Minute), Concerns: []adminv1.HealthConcern{{Kind: "etcd_fails"}}}
	record := &database.HealthRecord{UID: "uid", Health: stated, Entries: []adminv1.JournalEntry{first, second}}
	current, outdated := &database.GroupReport{Time: now.Add(-30 * time.Second)}, &database.GroupReport{Time: now.Add(-2 * time.Minute)}
	for reason, tc := range map[string]struct {
		record *database.HealthRecord
		report *database.GroupReport
		want   adminv1.Health
	}{
		"observed":            {record, current, stated},
		"no longer observed":  {record, outdated, adminv1.Health{API: "unknown", Reason: "monitor_away", Detail: "monitor reported last at 2026-11-24T03:58:00Z", Since: outdated.Time}},
		"never observed":      {record, nil, adminv1.Health{API: "unknown", Reason: "monitor_away", Detail: "no replica of monitor has ever reported about the cluster"}},
		"not recorded yet":    {nil, current, adminv1.Health{API: "unknown", Reason: "not_recorded"}},
		"monitor sees nobody": {record, &database.GroupReport{Time: now, Blind: "no anchor answers"}, adminv1.Health{API: "unknown", Reason: "blind", Detail: "no anchor answers"}},
	} {
		got := journalOf(now, tc.record, tc.report)
		if diff := cmp.Diff(tc.want, got.Health); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
		if tc.record != nil && !cmp.Equal(got.Items, []adminv1.JournalEntry{second, first}) {
			t.Errorf("%s: got the entries %v", reason, got.Items)
		}
	}
}
