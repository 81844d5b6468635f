package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// ends is a verify.Ends of the evidence with the time of its next check.
type ends struct {
	*evidence
	*verify.Ends
	now time.Time
}

// newEnds returns an ends with the keys of the evidence.
func newEnds(t *testing.T) *ends {
	t.Helper()
	e := newEvidence(t)
	keys := func() (audit.Keys, error) { return e.keys, nil }
	return &ends{e, verify.NewEnds(sink.FileAt(e.logs), sink.FileWitnessAt(e.witness), keys, slog.New(slog.DiscardHandler), prometheus.NewRegistry()), began}
}

// put adds a checkpoint to the witness, as each writer may.
func (e *evidence) put(t *testing.T, name string, checkpoint []byte) {
	t.Helper()
	must.Do(t, sink.FileWitnessAt(e.witness).Put(t.Context(), name, checkpoint))
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
			want   verify.Problem // empty if there is none
		}{
			"nothing": {func(*testing.T, *evidence, string, []byte) {}, ""},
			"a record is appended": {func(t *testing.T, e *evidence, name string, log []byte) {
				record, _ := after(t, name, log, e.key)
				e.write(t, name, slices.Concat(log, record))
			}, verify.Unconfirmed},
			"a record and a checkpoint are appended": {func(t *testing.T, e *evidence, name string, log []byte) {
				record, checkpoint := after(t, name, log, e.key)
				e.write(t, name, slices.Concat(log, record, checkpoint))
			}, verify.Unconfirmed},
			"a part of a line is appended": {func(t *testing.T, e *evidence, name string, log []byte) { e.write(t, name, append(log, '{')) }, verify.Unconfirmed},
			"the log is deleted": {func(t *testing.T, e *evidence, name string, _ []byte) {
				must.Do(t, os.Remove(filepath.Join(e.logs, name+".jsonl")))
			}, verify.Cut},
			"the end is cut": {func(t *testing.T, e *evidence, name string, log []byte) {
				all := lines(log)
				e.write(t, name, bytes.Join(all[:len(all)-2], nil))
			}, verify.Cut},
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
				if tc.want != "" {
					want = []string{name + " " + string(tc.want)}
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

// TestPublicKeyMayArriveLater rotates the key of a writer. The verifier gets the public part, and the end of the former key, after it has read a checkpoint of the
// new key; or it never gets them.
func TestPublicKeyMayArriveLater(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		e := newEnds(t)
		name, key := e.writers[0], foreignKey(t)
		log := e.read(t, name)
		record, checkpoint := after(t, name, log, key)
		e.write(t, name, slices.Concat(log, record, checkpoint))
		e.put(t, name, checkpoint)
		if found := e.check(t); len(found) > 0 {
			t.Fatalf("without the key: %v", found)
		}
		if arrives {
			e.keys.TrustUntil(audit.Service(name), e.key, began.Add(30*time.Minute))
			e.keys.Trust(audit.Service(name), key)
		}
		if found := slices.Concat(e.check(t), e.check(t), e.check(t)); arrives != (len(found) == 0) {
			t.Errorf("the key arrives: %t; found %v", arrives, found)
		}
	}
}

// TestSinkHasCheckpointFirst checks a chain whenever the sink has a checkpoint, and the witness does not have it yet.
func TestSinkHasCheckpointFirst(t *testing.T) {
	e := newEnds(t)
	name := e.writers[0]
	for n := range 5 {
		log := e.read(t, name)
		record, checkpoint := after(t, name, log, e.key)
		e.write(t, name, slices.Concat(log, record, checkpoint))
		for _, before := range []bool{true, false} {
			if found := e.check(t); len(found) > 0 {
				t.Fatalf("checkpoint %d, before the witness has it: %t: %v", n, before, found)
			}
			if before {
				e.put(t, name, checkpoint)
			}
		}
	}
}

// TestEarlierReleaseReplacesCheckpoints continues a chain with writers of this release, which append to the witness, and of an earlier one, which replaces what the
// witness has. Only a witness that was set back has a finding.
func TestEarlierReleaseReplacesCheckpoints(t *testing.T) {
	e := newEnds(t)
	name := e.writers[0]
	witness := filepath.Join(e.witness, name+".checkpoint")
	proceed := func() (checkpoint []byte) {
		t.Helper()
		log := e.read(t, name)
		record, checkpoint := after(t, name, log, e.key)
		e.write(t, name, slices.Concat(log, record, checkpoint))
		return checkpoint
	}
	replace := func(checkpoint []byte) {
		t.Helper()
		must.Do(t, os.WriteFile(witness, checkpoint, 0o600))
	}
	var former []byte
	for n := range 60 { // the numbers of lines get a third digit
		if former = proceed(); n/5%2 == 0 {
			replace(former)
		} else {
			e.put(t, name, former)
		}
		if n%7 < 4 {
			if found := e.check(t); len(found) > 0 {
				t.Fatalf("checkpoint %d: %v", n, found)
			}
		}
	}
	for range 3 {
		e.put(t, name, proceed())
	}
	if found := e.check(t); len(found) > 0 {
		t.Fatalf("before the witness is set back: %v", found)
	}
	replace(former)
	proceed()
	if found := e.check(t); !slices.Equal(found, []string{name + " " + string(verify.Cut)}) {
		t.Errorf("after the witness was set back: %v", found)
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
		e.put(t, name, checkpoint)
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

// TestAttacksOfWritersAreFound makes what a service can do with its own rights, or those of another one: it may append to the witness, and has its own key. Verify
// finds it, and so does the periodic check, before and after it has verified the lines, also if it verifies a line or two each time.
func TestAttacksOfWritersAreFound(t *testing.T) {
	for name, tc := range map[string]struct {
		attack func(t *testing.T, e *evidence, name string, log [][]byte)
		want   verify.Problem
	}{
		"a service rewrites its log and signs it again": {func(t *testing.T, e *evidence, name string, log [][]byte) {
			rewritten := chain(t, name, 13, e.former, e.key)
			e.write(t, name, bytes.Join(rewritten, nil))
			e.put(t, name, rewritten[len(rewritten)-1])
		}, verify.Replaced},
		"a service rewrites its log without a record": {func(t *testing.T, e *evidence, name string, log [][]byte) {
			rewritten := chain(t, name, 11, e.former, e.key)
			e.write(t, name, bytes.Join(rewritten, nil))
			e.put(t, name, rewritten[len(rewritten)-1])
		}, verify.Cut},
		"a service rewrites its log and continues it": {func(t *testing.T, e *evidence, name string, log [][]byte) {
			rewritten := chain(t, name, 20, e.former, e.key)
			e.write(t, name, bytes.Join(rewritten, nil))
			e.put(t, name, rewritten[len(rewritten)-1])
		}, verify.Replaced},
		"a service adds a checkpoint to the witness of another one": {func(t *testing.T, e *evidence, name string, log [][]byte) {
			_, checkpoint := after(t, name, bytes.Join(log, nil), foreignKey(t))
			e.put(t, name, checkpoint)
		}, verify.Forged},
		"a service repeats a checkpoint in the witness of another one": {func(t *testing.T, e *evidence, name string, log [][]byte) { e.put(t, name, log[0]) }, verify.Forged},
		"a record in the middle is changed": {func(t *testing.T, e *evidence, name string, log [][]byte) {
			log[2] = bytes.Replace(log[2], []byte("ada@"), []byte("bob@"), 1)
			e.write(t, name, bytes.Join(log, nil))
		}, verify.Changed},
		"a record in the middle is replaced": {func(t *testing.T, e *evidence, name string, log [][]byte) {
			log[2], _ = audit.AppendRecord(nil, audit.Head{Writer: name, Time: began}, positionAfter(t, log[:2]), audit.Entry{Record: encoded(t, 99)})
			e.write(t, name, bytes.Join(log, nil))
		}, verify.Replaced},
	} {
		for _, c := range []struct {
			started bool
			limit   int64
			checks  int
		}{{false, 1 << 20, 3}, {true, 1 << 20, 3}, {false, 700, 40}, {true, 700, 40}} {
			t.Run(fmt.Sprintf("%s, started %t, limit %d", name, c.started, c.limit), func(t *testing.T) {
				e := newEnds(t)
				e.LimitRead(c.limit)
				if c.started {
					for range c.checks {
						if found := e.check(t); len(found) > 0 {
							t.Fatalf("without an attack: %v", found)
						}
					}
				}
				name := e.writers[1]
				tc.attack(t, e.evidence, name, lines(e.read(t, name)))
				var found []string
				for range c.checks {
					found = append(found, e.check(t)...)
				}
				if len(found) == 0 || strings.Contains(strings.Join(found, " "), e.writers[0]) {
					t.Errorf("the periodic check found %v", found)
				}
				if !slices.ContainsFunc(e.findings(t), func(f verify.Finding) bool { return f.Writer == name && f.Problem == tc.want }) {
					t.Errorf("Verify found %+v, want %s", e.findings(t), tc.want)
				}
			})
		}
	}
}

// foreignKey returns a key that is not one of the services of the evidence.
func foreignKey(t *testing.T) *audit.SigningKey {
	t.Helper()
	return must.Get(audit.GenerateKey())(t)
}

// positionAfter returns the position after the lines of a log.
func positionAfter(t *testing.T, log [][]byte) audit.Position {
	t.Helper()
	last := must.Get(audit.ParseLine(bytes.TrimSuffix(log[len(log)-1], []byte("\n"))))(t)
	return audit.Position{Sequence: last.Sequence, Hash: last.Hash}
}

// TestFailedCheckIsNoCheck checks that the metric with the time of the latest check has that of one that read everything.
func TestFailedCheckIsNoCheck(t *testing.T) {
	e, metrics := newEvidence(t), prometheus.NewRegistry()
	var unreadable error
	keys := func() (audit.Keys, error) { return e.keys, unreadable }
	ends := verify.NewEnds(sink.FileAt(e.logs), sink.FileWitnessAt(e.witness), keys, slog.New(slog.DiscardHandler), metrics)
	for i, fault := range []error{nil, errors.New("malformed key"), nil} {
		unreadable = fault
		now := began.Add(time.Duration(i) * time.Minute)
		if _, err := ends.Check(t.Context(), now); !errors.Is(err, fault) {
			t.Errorf("check %d: %v, want %v", i, err, fault)
		}
		families := must.Get(metrics.Gather())(t)
		at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "admin_audit_last_check_seconds" })
		if last := families[at].GetMetric()[0].GetGauge().GetValue(); (last == float64(now.Unix())) != (fault == nil) {
			t.Errorf("check %d with the error %v: the latest check was at %v, now is %d", i, fault, last, now.Unix())
		}
	}
}
