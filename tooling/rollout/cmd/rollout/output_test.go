package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/runner"
)

var events = []runner.Event{
	{Time: time.Unix(0, 0), Step: "a/deploy", Text: "running"},
	{Time: time.Unix(1, 0), Step: "b/deploy", Text: "running"},
	{Time: time.Unix(2, 0), Step: "a/deploy", Text: "failed: line 1\n\x1b[2Jline 2", Ended: true, Failed: true},
}

// TestProgressInAFile expects one line for each event, without control characters of programs.
func TestProgressInAFile(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	for _, e := range events {
		p.report(e)
	}
	p.close()
	want := "00:00:00 a/deploy: running\n00:00:01 b/deploy: running\n00:00:02 a/deploy: failed: line 1  [2Jline 2\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestProgressOnATerminal expects one line for each ended step, and the running steps in the last line.
func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.terminal = true
	for _, e := range events {
		p.report(e)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, clearLine+"running: b/deploy") || !strings.Contains(got, clearLine+"running: a/deploy, b/deploy") {
		t.Errorf("got %q", got)
	}
	p.close()
	if !strings.HasSuffix(out.String(), clearLine) {
		t.Errorf("the last line is left: %q", out.String())
	}
}
