package writer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// slowDisk decides when each sync of a writer ends, and how, until it is released.
type slowDisk struct {
	results  chan error
	released chan struct{}
}

func newSlowDisk() *slowDisk {
	return &slowDisk{results: make(chan error), released: make(chan struct{})}
}

// sync makes a file durable after the test has permitted it.
func (d *slowDisk) sync(file *os.File) error {
	select {
	case err := <-d.results:
		if err != nil {
			return err
		}
	case <-d.released:
	}
	return file.Sync()
}

// startOn runs a writer with a disk. Its first checkpoint is durable.
func (r *region) startOn(t *testing.T, d *slowDisk) (w *writer.Writer, stop func()) {
	t.Helper()
	r.sync = d.sync
	w, stop = r.start(t)
	d.results <- nil
	return w, stop
}

// startsAndOutcomes returns the lines with the records of actions that begin, and those with outcomes by the number of the beginning.
func startsAndOutcomes(t *testing.T, content string) (starts map[uint64]audit.Line, outcomes map[uint64][]audit.Line) {
	t.Helper()
	starts, outcomes = map[uint64]audit.Line{}, map[uint64][]audit.Line{}
	for text := range strings.Lines(content) {
		line, err := audit.ParseLine([]byte(strings.TrimSuffix(text, "\n")))
		switch {
		case err != nil:
			t.Fatal(err)
		case line.Pending:
			starts[line.Sequence] = line
		case line.Completes > 0:
			outcomes[line.Completes] = append(outcomes[line.Completes], line)
		}
	}
	return starts, outcomes
}

// TestRequestsDoNotWaitForSyncs begins and ends an action while the disk does not finish a sync.
func TestRequestsDoNotWaitForSyncs(t *testing.T) {
	r, d := newRegion(t, t.TempDir()), newSlowDisk()
	w, stop := r.startOn(t, d)
	action := must.Get(w.Begin(t.Context(), record(1)))(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := action.Durable(gone); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("the beginning is durable without a sync: %v", err)
	}
	d.results <- nil
	must.Do(t, action.Durable(t.Context()))
	must.Do(t, action.End(t.Context(), record(1)))
	// The sync of the outcome has not ended. The end of the process would not lose the outcome.
	snapshot := must.Get(writer.ReadQueue(r.queue()))(t)
	if starts, outcomes := startsAndOutcomes(t, string(snapshot.Content)); len(starts) != 1 || len(outcomes) != 1 {
		t.Errorf("the queue has %v and %v", starts, outcomes)
	}
	close(d.released)
	stop()
	if report := r.noFindings(t); report.Chains[0].Records != 2 {
		t.Errorf("the sink has %+v", report.Chains)
	}
}

// TestFailedSyncLosesNoOutcome lets the sync of an outcome fail after its request has ended, and that of a record for which a request
// waits. The outcome is stored later, the record is rejected.
func TestFailedSyncLosesNoOutcome(t *testing.T) {
	r, d := newRegion(t, t.TempDir()), newSlowDisk()
	w, stop := r.startOn(t, d)
	action := must.Get(w.Begin(t.Context(), record(1)))(t)
	d.results <- nil
	must.Do(t, action.End(t.Context(), record(1)))
	late := must.Get(w.Begin(t.Context(), record(2)))(t)
	d.results <- errors.New("input/output error")
	close(d.released)
	// The record was part of the failed sync, or is part of the next one.
	durable := late.Durable(t.Context())
	if err := late.End(t.Context(), record(2)); (err == nil) != (durable == nil) {
		t.Errorf("the beginning had %v, the end %v", durable, err)
	}
	if err := w.Append(t.Context(), record(3)); err != nil {
		t.Errorf("the queue does not store records after a failed sync: %v", err)
	}
	stop()
	r.noFindings(t)
	starts, outcomes := startsAndOutcomes(t, strings.Join(r.lines(t), "\n"))
	for sequence := range starts {
		if got := outcomes[sequence]; len(got) != 1 || got[0].Record.Outcome != audit.Succeeded {
			t.Errorf("line %d has the outcomes %+v", sequence, got)
		}
	}
	if want := 1; durable == nil && len(starts) != want+1 || durable != nil && len(starts) != want {
		t.Errorf("the beginning had %v, the sink has %+v", durable, starts)
	}
}

// TestAbandonedActionsHaveAnOutcome begins an action whose request ends before the beginning is durable.
func TestAbandonedActionsHaveAnOutcome(t *testing.T) {
	r, d := newRegion(t, t.TempDir()), newSlowDisk()
	w, stop := r.startOn(t, d)
	action := must.Get(w.Begin(t.Context(), record(1)))(t)
	writer.Abandon(action)
	close(d.released)
	stop()
	r.noFindings(t)
	starts, outcomes := startsAndOutcomes(t, strings.Join(r.lines(t), "\n"))
	if len(starts) != 1 || len(outcomes) != 1 {
		t.Fatalf("the sink has %v and %v", starts, outcomes)
	}
	for sequence := range starts {
		if got := outcomes[sequence]; len(got) != 1 || got[0].Record.Outcome != audit.Unknown {
			t.Errorf("the outcomes are %+v", got)
		}
	}
}

// TestActionsOfAnEndedProcessAreUnknown stops a writer while an action has not ended, after the queue has released other segments. The
// next one stores its outcome, once.
func TestActionsOfAnEndedProcessAreUnknown(t *testing.T) {
	r := newRegion(t, t.TempDir())
	r.maxBytes = writer.MinBytes
	w, stop := r.start(t)
	fillSegments := func() {
		t.Helper()
		for n := range 30 {
			must.Do(t, w.Append(t.Context(), record(n)))
		}
	}
	fillSegments()
	action := must.Get(w.Begin(t.Context(), record(7)))(t)
	must.Do(t, action.Durable(t.Context()))
	fillSegments()
	stop()
	if report := r.noFindings(t); report.Chains[0].Open != 1 {
		t.Errorf("the chain has %d open actions", report.Chains[0].Open)
	}
	for range 2 {
		_, stop = r.start(t)
		stop()
	}
	if report := r.noFindings(t); report.Chains[0].Open != 0 {
		t.Errorf("the chain has %d open actions", report.Chains[0].Open)
	}
	starts, outcomes := startsAndOutcomes(t, strings.Join(r.lines(t), "\n"))
	if len(starts) != 1 || len(outcomes) != 1 {
		t.Fatalf("the sink has %v and %v", starts, outcomes)
	}
	for sequence, start := range starts {
		want := *start.Record
		want.Outcome = audit.Unknown
		if got := outcomes[sequence]; len(got) != 1 || *got[0].Record != want {
			t.Errorf("the outcomes are %+v", got)
		}
	}
	if snapshot, err := writer.ReadQueue(r.queue()); err != nil || len(snapshot.Content) > writer.MinBytes/8 {
		t.Errorf("the queue keeps segments: %v, %d bytes", err, len(snapshot.Content))
	}
}

// TestCrashOfTheMachineLosesNothingDurable copies the queue of a writer as a machine may leave it: what was not synced is cut at each
// place, or missing in blocks. Everything that was durable is there, and each action has one outcome.
func TestCrashOfTheMachineLosesNothingDurable(t *testing.T) {
	r, d := newRegion(t, t.TempDir()), newSlowDisk()
	r.sink.down.Store(true)
	w, stop := r.startOn(t, d)
	begin := func(n int) audit.Action {
		t.Helper()
		return must.Get(w.Begin(t.Context(), record(n)))(t)
	}
	first, second := begin(1), begin(2)
	for synced := false; !synced; {
		select {
		case d.results <- nil:
		case <-writer.Done(second):
			synced = true
		}
	}
	must.Do(t, errors.Join(first.Durable(t.Context()), second.Durable(t.Context())))
	durable := must.Get(writer.ReadQueue(r.queue()))(t)
	must.Do(t, first.End(t.Context(), record(1)))
	third := begin(3)
	if err := second.End(t.Context(), record(2)); err != nil { // also written after the third began
		t.Fatal(err)
	}
	all := must.Get(writer.ReadQueue(r.queue()))(t)
	close(d.released)
	must.Do(t, third.End(t.Context(), record(3)))
	stop()

	from, content := len(durable.Content), all.Content
	var damaged [][]byte
	for cut := from; cut <= len(content); cut += 41 {
		damaged = append(damaged, content[:cut])
	}
	const block = 256 // smaller than the sectors of disks: each line has several
	for lost := from; lost < len(content); lost += block {
		for length := block; lost+length <= len(content); length *= 2 {
			holes := bytes.Clone(content)
			clear(holes[lost : lost+length])
			damaged = append(damaged, holes)
		}
	}
	for n, state := range damaged {
		after := newRegion(t, filepath.Join(t.TempDir(), fmt.Sprint(n)))
		after.key = r.key
		after.copyQueue(t, r, state)
		_, stop := after.start(t)
		stop()
		after.noFindings(t)
		lines := strings.Join(after.lines(t), "\n")
		if !strings.HasPrefix(lines, string(bytes.TrimSuffix(content[:from], []byte("\n")))) {
			t.Fatalf("crash %d lost durable lines", n)
		}
		starts, outcomes := startsAndOutcomes(t, lines)
		for sequence := range starts {
			if got := outcomes[sequence]; len(got) != 1 {
				t.Errorf("crash %d: line %d has the outcomes %+v", n, sequence, got)
			}
		}
	}
	if len(damaged) < 30 {
		t.Errorf("only %d states", len(damaged))
	}

	// The same in durable lines is no crash.
	for lost := 0; lost+block < from; lost += block {
		holes := bytes.Clone(content)
		clear(holes[lost : lost+block])
		after := newRegion(t, t.TempDir())
		after.copyQueue(t, r, holes)
		if _, err := after.open(); !errors.Is(err, writer.ErrDamaged) {
			t.Errorf("a queue with a changed durable line was opened: byte %d, %v", lost, err)
		}
	}
}

// copyQueue creates the queue of a region with the name of another one and a content of the first segment.
func (r *region) copyQueue(t *testing.T, from *region, content []byte) {
	t.Helper()
	name := must.Get(os.ReadFile(filepath.Join(from.queue(), "writer")))(t)
	must.Do(t, os.MkdirAll(r.queue(), 0o700))
	for file, content := range map[string][]byte{"writer": name, fmt.Sprintf("%020d.queue", 0): slices.Clone(content)} {
		must.Do(t, os.WriteFile(filepath.Join(r.queue(), file), content, 0o600))
	}
}
