package command

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// withTimeline returns an admin that has a timeline of one hour.
func withTimeline(t *testing.T) *sres {
	t.Helper()
	a := newSREs(t)
	at := time.Date(2026, 11, 24, 1, 30, 0, 0, time.UTC)
	a.shown["/clusters/demo/timeline?from=2026-11-24T01%3A00%3A00Z&to=2026-11-24T02%3A00%3A00Z"] = adminv1.Timeline{
		Entries: []adminv1.TimelineEntry{
			{Time: at, Layer: adminv1.LayerClusterService, Kind: adminv1.TimelineCondition, Summary: "The condition Available changed."},
			{Time: at.Add(time.Minute), Layer: adminv1.LayerAdmin, Kind: adminv1.TimelineAction, Subject: "nodePools/workers", Summary: "The action ended.", Person: "alice", Reason: "it waits", Ticket: "INC-1"},
		},
		Omitted: 7,
		DesiredState: []adminv1.TimelineDifference{
			{FromGeneration: 1, ToGeneration: 3, Fields: []adminv1.FieldDifference{{Path: "version.id", Before: `"4.20.1"`, After: `"4.20.2"`}}},
			{Subject: "nodePools/workers", ToGeneration: 1},
		},
		Partial: true, Unavailable: map[string]string{adminv1.LayerARM: "It did not respond in time."},
	}
	return a
}

const oneHour = "--from=2026-11-24T01:00:00Z --to=2026-11-24T02:00:00Z"

// TestTimelineOutput checks the tables of entries and of differences, the filter, and the warnings.
func TestTimelineOutput(t *testing.T) {
	a := withTimeline(t)
	var warnings strings.Builder
	root := NewFor(io.Discard, &warnings, a.connect)
	root.SetArgs(append([]string{"timeline", "demo"}, strings.Fields(oneHour)...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Error(err)
	}
	if got := warnings.String(); !strings.Contains(got, "the layer arm is missing: It did not respond in time.") || !strings.Contains(got, "7 older entries are omitted") {
		t.Errorf("the warnings are %q", got)
	}
	for args, want := range map[string][]string{
		oneHour: {
			"2026-11-24T01:30:00Z  cluster-service  Condition  cluster            -              The condition Available changed.",
			"2026-11-24T01:31:00Z  admin            Action     nodePools/workers  alice (INC-1)  The action ended.",
		},
		oneHour + " --desired-state": {
			`cluster            1 → 3       version.id  "4.20.1"  "4.20.2"`,
			`nodePools/workers  new → 1     -           -         -`,
		},
		oneHour + " -o json": {`"omitted": 7`},
	} {
		got, err := a.hcpctl(t, append([]string{"timeline", "demo"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		for _, line := range want {
			if !strings.Contains(got, line) {
				t.Errorf("%s: the output has no %q:\n%s", args, line, got)
			}
		}
	}
	got, err := a.hcpctl(t, append([]string{"timeline", "demo", "--kind=Action"}, strings.Fields(oneHour)...)...)
	if err != nil || strings.Contains(got, "Available") || !strings.Contains(got, "alice") {
		t.Errorf("only actions: %v\n%s", err, got)
	}
}

// TestTimelineFlags checks that invalid flags are errors of the command line.
func TestTimelineFlags(t *testing.T) {
	a := withTimeline(t)
	for args, want := range map[string]string{
		"--from=yesterday":                         `--from: "yesterday" is not a time`,
		"--to=12:00":                               `--to: "12:00" is not a time`,
		"--since=-1h":                              "--since: -1h0m0s is negative",
		"--since=1h --from=2026-11-24T01:00:00Z":   "cannot be combined",
		"--kind=Action,Explosion":                  `--kind: "Explosion" is not one of`,
		"--kind=Action --since=1h --output=sketch": "--output",
	} {
		_, err := a.hcpctl(t, append([]string{"timeline", "demo"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) || ExitCode(err) != exitUsage {
			t.Errorf("%s: %v with exit code %d, want %q", args, err, ExitCode(err), want)
		}
	}
}
