package verify_test

import (
	"bytes"
	"cmp"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
)

// ends is a verify.Ends of the evidence with the time of its next check.
type ends struct {
	*evidence
	*verify.Ends
	now time.Time
}

func newEnds(t *testing.T) *ends {
	t.Helper()
	e := newEvidence(t)
	return &ends{e, verify.NewEnds(sink.FileAt(e.logs), sink.FileWitnessAt(e.witness), slog.New(slog.DiscardHandler), prometheus.NewRegistry()), began}
}

// check returns the writers and the problems of a check, a minute after the one before.
func (e *ends) check(t *testing.T) (found []string) {
	t.Helper()
	e.now = e.now.Add(time.Minute)
	findings, err := e.Check(t.Context(), e.now)
	if err != nil {
		t.Error(err)
	}
	for _, f := range findings {
		found = append(found, f.Writer+" "+string(f.Problem))
	}
	return found
}

// after returns a record and a checkpoint that follow a log.
func after(t *testing.T, name string, log []byte, key *audit.SigningKey) (record, checkpoint []byte) {
	t.Helper()
	all := lines(log)
	last, err := audit.ParseLine(bytes.TrimSuffix(all[len(all)-1], []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	head := audit.Head{Writer: name, Time: began.Add(time.Hour)}
	record, at := audit.AppendRecord(nil, head, audit.Position{Sequence: last.Sequence, Hash: last.Hash, Offset: int64(len(log))}, audit.Entry{Record: encoded(t, 1)})
	if checkpoint, _, err = audit.AppendCheckpoint(nil, head, at, key); err != nil {
		t.Fatal(err)
	}
	return record, checkpoint
}

// TestEndsOfStoppedWritersAreChecked changes the log of a writer that does not run. Each change has exactly one finding, also if it was made before the first check.
func TestEndsOfStoppedWritersAreChecked(t *testing.T) {
	for _, started := range []bool{true, false} {
		for name, tc := range map[string]struct {
			change func(t *testing.T, e *evidence, name string, log []byte)
			// want is the problem; empty if there is none. first is that of a change before the first check; empty if it is the same.
			want, first verify.Problem
		}{
			"nothing": {func(*testing.T, *evidence, string, []byte) {}, "", ""},
			"a record is appended": {func(t *testing.T, e *evidence, name string, log []byte) {
				record, _ := after(t, name, log, e.key)
				e.write(t, name, slices.Concat(log, record))
			}, verify.Unconfirmed, ""},
			"a record and a checkpoint are appended": {func(t *testing.T, e *evidence, name string, log []byte) {
				record, checkpoint := after(t, name, log, e.key)
				e.write(t, name, slices.Concat(log, record, checkpoint))
			}, verify.Unconfirmed, ""},
			"a part of a line is appended": {func(t *testing.T, e *evidence, name string, log []byte) { e.write(t, name, append(log, '{')) }, verify.Unconfirmed, ""},
			"the log is deleted": {func(t *testing.T, e *evidence, name string, _ []byte) {
				if err := os.Remove(filepath.Join(e.logs, name+".jsonl")); err != nil {
					t.Fatal(err)
				}
			}, verify.Cut, ""},
			"the end is cut": {func(t *testing.T, e *evidence, name string, log []byte) {
				all := lines(log)
				e.write(t, name, bytes.Join(all[:len(all)-2], nil))
			}, verify.Cut, verify.Unconfirmed},
		} {
			t.Run(name, func(t *testing.T) {
				e := newEnds(t)
				if started {
					if found := e.check(t); len(found) > 0 {
						t.Fatalf("without a change: %v", found)
					}
				}
				name := e.writers[0]
				tc.change(t, e.evidence, name, e.read(t, name))
				var found, want []string
				for range 4 {
					found = append(found, e.check(t)...)
				}
				if problem := tc.want; problem != "" {
					if !started {
						problem = cmp.Or(tc.first, tc.want)
					}
					want = []string{name + " " + string(problem)}
				}
				if !slices.Equal(found, want) {
					t.Errorf("found %v, want %v", found, want)
				}
			})
		}
	}
}

// TestUnknownChainIsFound adds the log of a writer that never existed, and a file with another name. They hide no finding of others.
func TestUnknownChainIsFound(t *testing.T) {
	e := newEnds(t)
	const unknown = "frontend-00000000000000ff"
	e.write(t, unknown, bytes.Join(chain(t, unknown, 3, e.former, e.key), nil))
	e.write(t, "x", []byte("x"))
	if found := append(e.check(t), e.check(t)...); !slices.Equal(found, []string{unknown + " " + string(verify.Unconfirmed)}) {
		t.Errorf("found %v", found)
	}
}

// TestRunningWriterIsNotFound appends a record before each check, whose checkpoint the witness has until the next one. When the witness gets no more checkpoints, the
// chain is found once, and again after it was confirmed.
func TestRunningWriterIsNotFound(t *testing.T) {
	e := newEnds(t)
	name := e.writers[0]
	var checkpoint []byte
	write := func() {
		t.Helper()
		log := e.read(t, name)
		var record []byte
		record, checkpoint = after(t, name, log, e.key)
		e.write(t, name, append(log, record...))
	}
	confirm := func() {
		t.Helper()
		e.write(t, name, append(e.read(t, name), checkpoint...))
		if err := os.WriteFile(filepath.Join(e.witness, name+".checkpoint"), checkpoint, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for range 3 {
			write()
			if found := e.check(t); len(found) > 0 {
				t.Fatalf("a running writer: %v", found)
			}
			confirm()
		}
		write()
		if found := slices.Concat(e.check(t), e.check(t), e.check(t)); len(found) != 1 {
			t.Errorf("a writer that was killed: %v", found)
		}
		confirm()
		if found := e.check(t); len(found) > 0 {
			t.Errorf("a writer that confirms its records later: %v", found)
		}
	}
}
