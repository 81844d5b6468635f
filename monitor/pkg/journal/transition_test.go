package journal

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
)

func TestTransitions(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 4, 0, 0, 0, time.UTC)
	earlier, before := now.Add(-time.Minute), now.Add(-time.Hour)
	etcd := judge.Concern{Kind: judge.EtcdFails, Since: earlier, Fault: judge.Service, Evidence: "status 500: etcd"}
	available := adminv1.Health{API: "available", Since: before}
	unavailable := adminv1.Health{API: "unavailable", Since: before, Concerns: []adminv1.HealthConcern{{Kind: "etcd_fails", Since: before, Fault: "service", Evidence: "first"}}}
	for reason, tc := range map[string]struct {
		recorded adminv1.Health
		verdict  judge.Verdict
		want     adminv1.Health
		entries  []adminv1.JournalEntry
	}{
		"the first known state": {
			verdict: judge.Verdict{API: judge.Available}, want: adminv1.Health{API: "available", Since: now},
			entries: []adminv1.JournalEntry{{Time: now, Event: "api", To: "available", Since: now}},
		},
		"an outage begins with its first failed probe": {
			recorded: available, verdict: judge.Verdict{API: judge.Unavailable, Concerns: []judge.Concern{etcd}},
			want: adminv1.Health{API: "unavailable", Since: earlier, Concerns: []adminv1.HealthConcern{{Kind: "etcd_fails", Since: earlier, Fault: "service", Evidence: "status 500: etcd"}}},
			entries: []adminv1.JournalEntry{
				{Time: now, Event: "api", From: "available", To: "unavailable", Since: earlier},
				{Time: now, Event: "concern_began", Kind: "etcd_fails", Fault: "service", Since: earlier, Evidence: "status 500: etcd"},
			},
		},
		"new evidence of a known concern is no transition": {
			recorded: unavailable, verdict: judge.Verdict{API: judge.Unavailable, Concerns: []judge.Concern{etcd}}, want: unavailable,
		},
		"the cause changes": {
			recorded: unavailable, verdict: judge.Verdict{API: judge.Unavailable, Concerns: []judge.Concern{{Kind: judge.APIHangs, Since: earlier, Fault: judge.Service}}},
			want: adminv1.Health{API: "unavailable", Since: before, Concerns: []adminv1.HealthConcern{{Kind: "api_hangs", Since: earlier, Fault: "service"}}},
			entries: []adminv1.JournalEntry{
				{Time: now, Event: "concern_began", Kind: "api_hangs", Fault: "service", Since: earlier},
				{Time: now, Event: "concern_ended", Kind: "etcd_fails", Fault: "service", Since: before},
			},
		},
		"an outage ends": {
			recorded: unavailable, verdict: judge.Verdict{API: judge.Available}, want: adminv1.Health{API: "available", Since: now},
			entries: []adminv1.JournalEntry{
				{Time: now, Event: "api", From: "unavailable", To: "available", Since: now},
				{Time: now, Event: "concern_ended", Kind: "etcd_fails", Fault: "service", Since: before},
			},
		},
		"a state becomes unknown": {
			recorded: available, verdict: judge.Verdict{API: judge.Unknown, Reason: judge.ProbeFailed, Detail: "no file descriptors"},
			want:    adminv1.Health{API: "unknown", Reason: "probe_failed", Detail: "no file descriptors", Since: now},
			entries: []adminv1.JournalEntry{{Time: now, Event: "api", From: "available", To: "unknown", Reason: "probe_failed", Since: now, Evidence: "no file descriptors"}},
		},
		"customers block monitor from the beginning": {
			verdict: judge.Verdict{API: judge.Unknown, Reason: judge.Blocked}, want: adminv1.Health{API: "unknown", Reason: "blocked", Since: now},
			entries: []adminv1.JournalEntry{{Time: now, Event: "api", To: "unknown", Reason: "blocked", Since: now}},
		},
		"blindness is no state of a cluster":    {recorded: available, verdict: judge.Verdict{API: judge.Unknown, Reason: judge.Blind}, want: available},
		"a new cluster has no state yet":        {verdict: judge.Verdict{API: judge.Unknown, Reason: judge.NotReady}},
		"a new cluster is not probed yet":       {verdict: judge.Verdict{API: judge.Unknown, Reason: judge.NotProbed}},
		"the same state, also its since, stays": {recorded: available, verdict: judge.Verdict{API: judge.Available}, want: available},
	} {
		got, entries := transitions(now, tc.recorded, &tc.verdict)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: state (-want +got):\n%s", reason, diff)
		}
		if diff := cmp.Diff(tc.entries, entries); diff != "" {
			t.Errorf("%s: entries (-want +got):\n%s", reason, diff)
		}
	}
}
