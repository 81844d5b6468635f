package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
)

// evidence is a sink and a witness with the chains of two writers. Their service has replaced the key former by key.
type evidence struct {
	logs, witness string
	keys          audit.Keys
	former, key   *audit.SigningKey
	writers       []string
}

var began = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func encoded(t testing.TB, n int) []byte {
	t.Helper()
	text, err := audit.EncodeRecord(audit.Record{Person: audit.Person{Name: "ada@example.com"}, Action: "clusters.dump", Object: audit.Object{ID: fmt.Sprint("cluster-", n)}, Outcome: audit.Succeeded})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// rotatedAfter is the number of records of a chain before its key is replaced.
const rotatedAfter = 7

// chain returns a chain that begins with a checkpoint, has one after each five records, and ends with one. The key former signs the
// checkpoints of the first part, and key the others.
func chain(t testing.TB, name string, records int, former, key *audit.SigningKey) (lines [][]byte) {
	t.Helper()
	at := audit.Position{}
	for n := 0; n <= records; n++ {
		var line []byte
		if n%5 == 0 || n == records {
			var err error
			signer := key
			if n < rotatedAfter {
				signer = former
			}
			if line, at, err = audit.AppendCheckpoint(nil, audit.Head{Writer: name, Time: began.Add(time.Duration(n) * time.Second)}, at, signer); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		if n < records {
			line, at = audit.AppendRecord(nil, audit.Head{Writer: name, Time: began.Add(time.Duration(n) * time.Second)}, at, audit.Entry{Record: encoded(t, n)})
			lines = append(lines, line)
		}
	}
	return lines
}

func newEvidence(t testing.TB) *evidence {
	t.Helper()
	dir := t.TempDir()
	e := &evidence{logs: filepath.Join(dir, "sink"), witness: filepath.Join(dir, "witness"), keys: audit.Keys{}, writers: []string{"admin-0123456789abcdef", "backend-fedcba9876543210"}}
	for _, key := range []**audit.SigningKey{&e.former, &e.key} {
		var err error
		if *key, err = audit.GenerateKey(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{e.logs, e.witness} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range e.writers {
		e.keys.TrustUntil(audit.Service(name), e.former, began.Add(rotatedAfter*time.Second))
		e.keys.Trust(audit.Service(name), e.key)
		lines := chain(t, name, 12+i, e.former, e.key)
		e.write(t, name, bytes.Join(lines, nil))
		if err := os.WriteFile(filepath.Join(e.witness, name+".checkpoint"), lines[len(lines)-1], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// write replaces the log of a writer.
func (e *evidence) write(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(e.logs, name+".jsonl"), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (e *evidence) read(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(e.logs, name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// failer is the part of testing.T and rapid.T that findings uses.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// findings verifies the evidence.
func (e *evidence) findings(t failer) []verify.Finding {
	t.Helper()
	logs, err := sink.OpenFile(e.logs)
	if err != nil {
		t.Fatal(err)
	}
	witness, err := sink.OpenFileWitness(e.witness)
	if err != nil {
		t.Fatal(err)
	}
	report, err := verify.Verify(context.Background(), verify.Input{Log: logs, Witness: witness, Keys: e.keys})
	if err != nil {
		t.Fatal(err)
	}
	return report.Findings
}

// lines returns the lines of a log with their newlines.
func lines(content []byte) [][]byte { return slices.Collect(bytes.Lines(content)) }

// TestEveryMutationIsFound changes, deletes, inserts, repeats and swaps lines and bytes, and cuts the end, at arbitrary places.
func TestEveryMutationIsFound(t *testing.T) {
	e := newEvidence(t)
	if found := e.findings(t); len(found) > 0 {
		t.Fatalf("without a mutation: %+v", found)
	}
	name := e.writers[0]
	original := e.read(t, name)
	other := lines(e.read(t, e.writers[1]))
	mutations := map[string]func(t *rapid.T) []byte{
		"change a byte": func(t *rapid.T) []byte {
			content := bytes.Clone(original)
			at := rapid.IntRange(0, len(content)-1).Draw(t, "at")
			content[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
			return content
		},
		"delete bytes": func(t *rapid.T) []byte {
			at := rapid.IntRange(0, len(original)-1).Draw(t, "at")
			return slices.Delete(bytes.Clone(original), at, min(at+rapid.IntRange(1, 900).Draw(t, "count"), len(original)))
		},
		"insert bytes": func(t *rapid.T) []byte {
			at := rapid.IntRange(0, len(original)).Draw(t, "at")
			return slices.Insert(bytes.Clone(original), at, rapid.SliceOfN(rapid.Byte(), 1, 400).Draw(t, "bytes")...)
		},
		"delete lines": func(t *rapid.T) []byte {
			all := lines(original)
			at := rapid.IntRange(0, len(all)-1).Draw(t, "at")
			return bytes.Join(slices.Delete(all, at, rapid.IntRange(at+1, len(all)).Draw(t, "to")), nil)
		},
		"repeat a line": func(t *rapid.T) []byte {
			all := lines(original)
			line := rapid.SampledFrom(all).Draw(t, "line")
			return bytes.Join(slices.Insert(all, rapid.IntRange(0, len(all)).Draw(t, "at"), line), nil)
		},
		"insert a line of another chain": func(t *rapid.T) []byte {
			all := lines(original)
			return bytes.Join(slices.Insert(all, rapid.IntRange(0, len(all)).Draw(t, "at"), rapid.SampledFrom(other).Draw(t, "line")), nil)
		},
		"swap lines": func(t *rapid.T) []byte {
			all := lines(original)
			a := rapid.IntRange(0, len(all)-2).Draw(t, "a")
			b := rapid.IntRange(a+1, len(all)-1).Draw(t, "b")
			all[a], all[b] = all[b], all[a]
			return bytes.Join(all, nil)
		},
		"cut the end": func(t *rapid.T) []byte {
			return original[:rapid.IntRange(0, len(original)-1).Draw(t, "length")]
		},
		"calculate a new chain without the key": func(t *rapid.T) []byte {
			other, err := audit.GenerateKey()
			if err != nil {
				t.Fatal(err)
			}
			return recalculated(t, name, original, rapid.IntRange(0, len(lines(original))-1).Draw(t, "from"), other, 0)
		},
		"calculate a new chain with the former key": func(t *rapid.T) []byte {
			return recalculated(t, name, original, rapid.IntRange(0, len(lines(original))-1).Draw(t, "from"), e.former, 0)
		},
		"calculate a new chain with the former key and earlier times": func(t *rapid.T) []byte {
			return recalculated(t, name, original, rapid.IntRange(0, len(lines(original))-1).Draw(t, "from"), e.former, time.Hour)
		},
	}
	for what, mutate := range mutations {
		t.Run(what, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				content := mutate(t)
				if bytes.Equal(content, original) {
					return
				}
				if err := os.WriteFile(filepath.Join(e.logs, name+".jsonl"), content, 0o600); err != nil {
					t.Fatal(err)
				}
				found := e.findings(t)
				if len(found) == 0 {
					t.Fatalf("the mutation was not found")
				}
				for _, f := range found {
					if f.Writer != name || f.Message == "" {
						t.Errorf("a finding is about another writer: %+v", f)
					}
				}
			})
		})
	}
	e.write(t, name, original)
	if found := e.findings(t); len(found) > 0 {
		t.Errorf("the original: %+v", found)
	}
}

// recalculated returns the chain with changed records from a line on, correct hashes, and checkpoints of a key with earlier times.
func recalculated(t failer, name string, original []byte, from int, key *audit.SigningKey, earlier time.Duration) []byte {
	all := lines(original)
	at, content := audit.Position{}, []byte(nil)
	for i, text := range all {
		line, err := audit.ParseLine(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case i < from:
			content = append(content, text...)
			at = line.At(at.Offset, len(text))
		case line.Kind == audit.CheckpointLine:
			if content, at, err = audit.AppendCheckpoint(content, audit.Head{Writer: name, Time: line.Time.Add(-earlier)}, at, key); err != nil {
				t.Fatal(err)
			}
		default:
			r := *line.Record
			r.Person.Name = "mallory@example.com"
			encoded, err := audit.EncodeRecord(r)
			if err != nil {
				t.Fatal(err)
			}
			content, at = audit.AppendRecord(content, audit.Head{Writer: name, Time: line.Time.Add(-earlier)}, at, audit.Entry{Record: encoded})
		}
	}
	return content
}

func TestDeletedLogIsFound(t *testing.T) {
	e := newEvidence(t)
	if err := os.Remove(filepath.Join(e.logs, e.writers[1]+".jsonl")); err != nil {
		t.Fatal(err)
	}
	found := e.findings(t)
	if len(found) != 1 || found[0].Problem != verify.Cut || found[0].Writer != e.writers[1] {
		t.Errorf("found %+v", found)
	}
}

// TestForeignFilesAreFound adds logs that no writer made.
func TestForeignFilesAreFound(t *testing.T) {
	e := newEvidence(t)
	first, _ := audit.AppendRecord(nil, audit.Head{Writer: "admin-00000000000000aa", Time: began}, audit.Position{}, audit.Entry{Record: encoded(t, 0)})
	for name, content := range map[string][]byte{
		"admin-00000000000000aa":   first,
		"backend-00000000000000bb": e.read(t, e.writers[0]),
		"notes":                    []byte("hello\n"),
		"admin-00000000000000dd":   bytes.Join(chain(t, "admin-00000000000000dd", 12, e.former, e.former), nil), // the key was replaced meanwhile
		"unknown-00000000000000cc": bytes.Join(chain(t, "unknown-00000000000000cc", 3, e.former, e.key), nil),
	} {
		e.write(t, name, content)
		found := e.findings(t)
		if len(found) == 0 || found[0].Writer != name {
			t.Errorf("%s: found %+v", name, found)
		}
		if err := os.Remove(filepath.Join(e.logs, name+".jsonl")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFindingsNameTheLine checks that the first finding names the affected line.
func TestFindingsNameTheLine(t *testing.T) {
	e := newEvidence(t)
	name := e.writers[0]
	original := e.read(t, name)
	all := lines(original)
	join := func(parts ...[][]byte) []byte { return bytes.Join(slices.Concat(parts...), nil) }
	for reason, c := range map[string]struct {
		content  []byte
		problem  verify.Problem
		sequence uint64
	}{
		"changed":  {bytes.Replace(original, []byte("cluster-3"), []byte("cluster-9"), 1), verify.Changed, 5},
		"deleted":  {join(all[:4], all[6:]), verify.Missing, 5},
		"repeated": {join(all[:6], all[4:5], all[6:]), verify.Misplaced, 5},
		"cut":      {join(all[:9]), verify.Cut, 10},
		"torn":     {original[:len(original)-1], verify.Incomplete, uint64(len(all))},
		"replaced": {recut(t, name, all), verify.Replaced, 5},
	} {
		e.write(t, name, c.content)
		found := e.findings(t)
		if len(found) == 0 || found[0].Problem != c.problem || found[0].Sequence != c.sequence {
			t.Errorf("%s: found %+v, want %s at %d", reason, found, c.problem, c.sequence)
		}
	}
}

// recut returns the lines with line 4 replaced by another valid line in the same place.
func recut(t *testing.T, name string, all [][]byte) []byte {
	before, err := audit.ParseLine(bytes.TrimSuffix(all[2], []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	line, _ := audit.AppendRecord(nil, audit.Head{Writer: name, Time: began}, before.At(0, 0), audit.Entry{Record: encoded(t, 77)})
	return bytes.Join(slices.Concat(all[:3], [][]byte{line}, all[4:]), nil)
}

// TestReplacedKeyCannotContinueChain continues chains with the key that was replaced, as somebody can who has that key and can write the
// sink and the witness. A later time is after the end of the key's use, and with an earlier one the key comes after its successor.
func TestReplacedKeyCannotContinueChain(t *testing.T) {
	for name, earlier := range map[string]time.Duration{"with the times of the chain": 0, "with earlier times": time.Hour} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(t)
			name := e.writers[0]
			original := e.read(t, name)
			last := len(lines(original)) - 3 // a record between the last two checkpoints, both of the next key
			content := recalculated(t, name, original, last, e.former, earlier)
			e.write(t, name, content)
			forged := lines(content)
			if err := os.WriteFile(filepath.Join(e.witness, name+".checkpoint"), forged[len(forged)-1], 0o600); err != nil {
				t.Fatal(err)
			}
			found := e.findings(t)
			if !slices.ContainsFunc(found, func(f verify.Finding) bool { return f.Problem == verify.Forged && f.Line == len(forged) }) {
				t.Errorf("found %+v, want a forged checkpoint in line %d", found, len(forged))
			}
		})
	}
}

// TestWitnessIsChecked changes the witness.
func TestWitnessIsChecked(t *testing.T) {
	e := newEvidence(t)
	path := filepath.Join(e.witness, e.writers[0]+".checkpoint")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(content, []byte(`"sequence":1`), []byte(`"sequence":2`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	found := e.findings(t)
	if len(found) != 1 || found[0].Problem != verify.Forged || !strings.Contains(found[0].Message, "witness") {
		t.Errorf("found %+v", found)
	}
}
