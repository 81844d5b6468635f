package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFiguresAreCompared reads tables of two rounds of a commit and of this checkout, and compares what all of them have.
func TestFiguresAreCompared(t *testing.T) {
	table := func(median time.Duration, perSecond string, only string) *bytes.Buffer {
		out := &bytes.Buffer{}
		r := newReport(out)
		out.WriteString("machine: 2 cores, linux/amd64, go1.26.4\n\n")
		r.durations("PUT sent to operation Succeeded", []time.Duration{median}, "goal: p50 600ms")
		r.line("GET of a cluster through the frontend", perSecond+"/s, p99 900µs", "goal: 3000/s, p99 10ms; 0.18 of /healthz")
		r.line("  memory of frontend", "240 MiB", "")
		r.line("10 clusters created at once, all Succeeded", "after "+round(90*time.Second), "")
		if only != "" {
			r.line(only, "1ms", "")
		}
		return out
	}
	var f figures
	for round := range 2 {
		f.read(0, table(time.Second, "3000", "figure of the commit"))
		f.read(1, table(time.Second+time.Duration(round)*500*time.Millisecond, "1500", "figure of this checkout"))
	}
	out := &bytes.Buffer{}
	f.print("3abb67c", out)
	want := `seconds, or the unit of the figure                              3abb67c          now  ratio (least to greatest)
PUT sent to operation Succeeded (1 runs) p50                          1         1.25  1.25 (1.00 to 1.50)
PUT sent to operation Succeeded (1 runs) p99                          1         1.25  1.25 (1.00 to 1.50)
GET of a cluster through the frontend                              3000         1500  0.50 (0.50 to 0.50)
GET of a cluster through the frontend p99                        0.0009       0.0009  1.00 (1.00 to 1.00)
  memory of frontend                                                240          240  1.00 (1.00 to 1.00)
10 clusters created at once, all Succeeded after                     90           90  1.00 (1.00 to 1.00)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	// The rate has halved, and more of it is better. The first round of PUT is as fast as before.
	for limit, want := range map[float64][]string{1.15: {"GET of a cluster through the frontend: 0.50 (0.50 to 0.50)"}, 2.1: nil} {
		if diff := cmp.Diff(want, f.worse(limit)); diff != "" {
			t.Errorf("worse by %.2f: %s", limit, diff)
		}
	}
	wantLines := "2026-11-30\tabcdef01\tPUT sent to operation Succeeded (1 runs) p50\t1\n"
	var recorded figures
	recorded.read(0, table(time.Second, "3000", ""))
	if lines := recorded.lines("2026-11-30", "abcdef01"); !strings.HasPrefix(lines, wantLines) {
		t.Errorf("the recorded lines begin with %q, want %q", lines, wantLines)
	}
}
