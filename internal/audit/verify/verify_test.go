package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
	return must.Get(audit.EncodeRecord(audit.Record{Person: audit.Person{Name: "ada@example.com"}, Action: "clusters.dump", Object: audit.Object{ID: fmt.Sprint("cluster-", n)}, Outcome: audit.Succeeded}))(t)
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
		*key = must.Get(audit.GenerateKey())(t)
	}
	for _, dir := range []string{e.logs, e.witness} {
		must.Do(t, os.Mkdir(dir, 0o700))
	}
	for i, name := range e.writers {
		e.keys.TrustUntil(audit.Service(name), e.former, began.Add(rotatedAfter*time.Second))
		e.keys.Trust(audit.Service(name), e.key)
		lines := chain(t, name, 12+i, e.former, e.key)
		e.write(t, name, bytes.Join(lines, nil))
		must.Do(t, os.WriteFile(filepath.Join(e.witness, name+".checkpoint"), lines[len(lines)-1], 0o600))
	}
	return e
}

// write replaces the log of a writer.
func (e *evidence) write(t testing.TB, name string, content []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(e.logs, name+".jsonl"), content, 0o600))
}

func (e *evidence) read(t testing.TB, name string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join(e.logs, name+".jsonl")))(t)
}

// failer is the part of testing.T and rapid.T that findings uses.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// input returns the input of a verification of the evidence.
func (e *evidence) input(t failer) verify.Input {
	t.Helper()
	logs := must.Get(sink.OpenFile(e.logs))(t)
	witness := must.Get(sink.OpenFileWitness(e.witness))(t)
	return verify.Input{Log: logs, Witness: witness, Keys: e.keys}
}

// findings verifies the evidence.
func (e *evidence) findings(t failer) []verify.Finding {
	t.Helper()
	report := must.Get(verify.Verify(context.Background(), e.input(t)))(t)
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
			other := must.Get(audit.GenerateKey())(t)
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
				must.Do(t, os.WriteFile(filepath.Join(e.logs, name+".jsonl"), content, 0o600))
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
			encoded := must.Get(audit.EncodeRecord(r))(t)
			content, at = audit.AppendRecord(content, audit.Head{Writer: name, Time: line.Time.Add(-earlier)}, at, audit.Entry{Record: encoded})
		}
	}
	return content
}

func TestDeletedLogIsFound(t *testing.T) {
	e := newEvidence(t)
	must.Do(t, os.Remove(filepath.Join(e.logs, e.writers[1]+".jsonl")))
	found := e.findings(t)
	if len(found) != 1 || found[0].Problem != verify.Cut || found[0].Writer != e.writers[1] {
		t.Errorf("found %+v", found)
	}
}

// TestForeignFilesAreFound adds logs that no writer made.
func TestForeignFilesAreFound(t *testing.T) {
	e := newEvidence(t)
	foreign := must.Get(audit.GenerateKey())(t)
	first, _ := audit.AppendRecord(nil, audit.Head{Writer: "admin-00000000000000aa", Time: began}, audit.Position{}, audit.Entry{Record: encoded(t, 0)})
	for name, content := range map[string][]byte{
		"admin-00000000000000aa":   first,
		"backend-00000000000000bb": e.read(t, e.writers[0]),
		"notes":                    []byte("hello\n"),
		"admin-00000000000000dd":   bytes.Join(chain(t, "admin-00000000000000dd", 12, e.former, e.former), nil), // the key was replaced meanwhile
		"admin-00000000000000ee":   bytes.Join(chain(t, "admin-00000000000000ee", 3, foreign, foreign), nil),
		"unknown-00000000000000cc": bytes.Join(chain(t, "unknown-00000000000000cc", 3, e.former, e.key), nil),
	} {
		e.write(t, name, content)
		found := e.findings(t)
		if len(found) == 0 || found[0].Writer != name {
			t.Errorf("%s: found %+v", name, found)
		}
		must.Do(t, os.Remove(filepath.Join(e.logs, name+".jsonl")))
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
	before := must.Get(audit.ParseLine(bytes.TrimSuffix(all[2], []byte("\n"))))(t)
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
			must.Do(t, os.WriteFile(filepath.Join(e.witness, name+".checkpoint"), forged[len(forged)-1], 0o600))
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
	content := must.Get(os.ReadFile(path))(t)
	must.Do(t, os.WriteFile(path, bytes.Replace(content, []byte(`"sequence":1`), []byte(`"sequence":2`), 1), 0o600))
	found := e.findings(t)
	if len(found) != 1 || found[0].Problem != verify.Forged || !strings.Contains(found[0].Message, "witness") {
		t.Errorf("found %+v", found)
	}
}

// appended returns a log with records at its end, which nobody needs a key for.
func appended(t testing.TB, content []byte, times ...time.Time) []byte {
	t.Helper()
	all := lines(content)
	last := must.Get(audit.ParseLine(bytes.TrimSuffix(all[len(all)-1], []byte("\n"))))(t)
	at, content := last.At(int64(len(content)), 0), bytes.Clone(content)
	for n, now := range times {
		content, at = audit.AppendRecord(content, audit.Head{Writer: last.Writer, Time: now}, at, audit.Entry{Record: encoded(t, 100+n)})
	}
	return content
}

// closed returns a log with the checkpoint at its end that closes the chain.
func (e *evidence) closed(t testing.TB, content []byte) []byte {
	t.Helper()
	all := lines(content)
	last, err := audit.ParseLine(bytes.TrimSuffix(all[len(all)-1], []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	content, _, err = audit.AppendEnd(bytes.Clone(content), audit.Head{Writer: last.Writer, Time: last.Time}, last.At(int64(len(content)), 0), e.key)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// queue creates the queue of a writer with a content from an offset on.
func queue(t testing.TB, name string, offset int, content []byte) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range map[string][]byte{"writer": []byte(name + "\n"), fmt.Sprintf("%020d.queue", offset): content[offset:]} {
		must.Do(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	return dir
}

// TestUnconfirmedRecordsAreNotBelieved appends records with correct hashes to a log, as everybody can who can write the sink.
func TestUnconfirmedRecordsAreNotBelieved(t *testing.T) {
	e := newEvidence(t)
	name := e.writers[0]
	valid := e.read(t, name)
	now := began.Add(time.Hour)
	recent := appended(t, valid, now.Add(-time.Second))
	closed := e.closed(t, valid)
	old := now.Add(-2 * time.Minute)
	overdue, twice := appended(t, valid, old), appended(t, valid, old, old)
	for reason, c := range map[string]struct {
		content []byte
		// written is when the storage got the content, queue the content of the queue from an offset on; nil if it is not read.
		written     time.Time
		queue       []byte
		offset      int
		want        verify.Problem
		unconfirmed int
	}{
		"a checkpoint at the end":                        {valid, now, nil, 0, "", 0},
		"the checkpoint is not due":                      {recent, now, nil, 0, "", 1},
		"the checkpoint was due":                         {overdue, now, nil, 0, verify.Unconfirmed, 1},
		"the checkpoint of the first record was due":     {appended(t, valid, old, now), now, nil, 0, verify.Unconfirmed, 2},
		"an earlier time behind a recent one":            {appended(t, valid, now, old), now, nil, 0, verify.Unconfirmed, 2},
		"a time in the future":                           {appended(t, valid, now, now.Add(2*time.Minute)), now, nil, 0, verify.Unconfirmed, 2},
		"a time in the future that has been reached":     {recent, old, nil, 0, verify.Unconfirmed, 1},
		"a recent record that the queue does not have":   {recent, now, valid, 0, verify.Forged, 1},
		"a recent record in place of that of the queue":  {recent, now, appended(t, valid, now.Add(-2*time.Second)), 0, verify.Replaced, 1},
		"a record before that of the queue":              {appended(t, recent, now), now, appended(t, valid, now), 0, verify.Forged, 2},
		"an earlier record that the queue has":           {overdue, old, overdue, 0, "", 1},
		"earlier records, the last in the queue":         {twice, old, twice, len(overdue), "", 2},
		"an earlier record before the queue":             {overdue, old, twice, len(overdue), "", 1},
		"another earlier record before the queue":        {appended(t, valid, old.Add(-time.Minute)), old, twice, len(overdue), verify.Unconfirmed, 1},
		"a closed chain":                                 {closed, now, nil, 0, "", 0},
		"a recent record behind a closed chain":          {appended(t, closed, now), now, nil, 0, verify.Forged, 1},
		"a record behind a closed chain, in the queue":   {appended(t, closed, now), now, appended(t, closed, now), 0, "", 1},
		"a recent record behind a closed chain, with it": {appended(t, closed, now), now, closed, 0, verify.Forged, 1},
	} {
		e.write(t, name, c.content)
		must.Do(t, os.Chtimes(filepath.Join(e.logs, name+".jsonl"), c.written, c.written))
		in := e.input(t)
		in.Now = func() time.Time { return now }
		if c.queue != nil {
			in.Queues = []string{queue(t, name, c.offset, c.queue)}
		}
		report := must.Get(verify.Verify(t.Context(), in))(t)
		var got verify.Problem
		if len(report.Findings) > 0 {
			got = report.Findings[0].Problem
		}
		if chain := report.Chains[0]; got != c.want || chain.Unconfirmed != c.unconfirmed || chain.Closed != bytes.Equal(c.content, closed) {
			t.Errorf("%s: chain %+v, findings %+v; want %q", reason, chain, report.Findings, c.want)
		}
	}
}

// TestRepeatedSignatureIsFound appends a record, and behind it the signed bytes of the last checkpoint with members that replace those.
func TestRepeatedSignatureIsFound(t *testing.T) {
	e := newEvidence(t)
	name := e.writers[0]
	valid := e.read(t, name)
	content := appended(t, valid, began)
	all := lines(content)
	record := must.Get(audit.ParseLine(bytes.TrimSuffix(all[len(all)-1], []byte("\n"))))(t)
	signed, _, _ := bytes.Cut(all[len(all)-2], []byte(`,"hash":"`))
	forged := fmt.Appendf(bytes.Clone(signed), `,"sequence":%d,"previous":"%s"`, record.Sequence+1, record.Hash)
	sum := sha256.Sum256(forged)
	e.write(t, name, fmt.Appendf(content, "%s,\"hash\":\"%s\"}\n", forged, hex.EncodeToString(sum[:])))
	if found := e.findings(t); len(found) == 0 || found[0].Problem != verify.Forged || found[0].Sequence != record.Sequence+1 {
		t.Errorf("found %+v, want a forged checkpoint", found)
	}
}
