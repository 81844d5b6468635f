package audithistory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

var began = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// newSink writes the chains of three writers with the records of two clusters, in an order of time across the writers. It returns the
// objects of the records about the cluster "mine", newest first.
func newSink(t *testing.T, records int) (*Reader, string, []string) {
	t.Helper()
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	writers := []string{"admin-00000000000000aa", "admin-00000000000000bb", "backend-00000000000000cc"}
	contents, ends, want := map[string][]byte{}, map[string]audit.Position{}, []string{}
	for n := range records {
		writer := writers[random.IntN(len(writers))]
		r := audit.Record{Action: "clusters.dump", Outcome: audit.Succeeded, Object: audit.Object{ID: fmt.Sprint("object-", n), Cluster: "other"}, Reason: strings.Repeat("r", random.IntN(300))}
		switch random.IntN(3) {
		case 0:
			r.Object.Cluster = "MINE"
			want = append(want, r.Object.ID)
		case 1:
			r.Object.Cluster, r.Outcome = "mine", audit.Started
		}
		encoded, err := audit.EncodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		contents[writer], ends[writer] = audit.AppendRecord(contents[writer], audit.Head{Writer: writer, Time: began.Add(time.Duration(n) * time.Second)}, ends[writer], audit.Entry{Record: encoded})
	}
	for writer, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, writer+".jsonl"), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(want)
	return New(sink.FileAt(dir), sink.FileWitnessAt(dir), nil), dir, want
}

// all returns the objects on all pages, and the number of pages.
func all(t *testing.T, r *Reader, size int) (objects []string, pages int) {
	t.Helper()
	for token := ""; ; {
		lines, next, err := r.Page(t.Context(), "Mine", token, size)
		if err != nil {
			t.Fatal(err)
		}
		if len(lines) > size {
			t.Fatalf("a page of %d has %d records", size, len(lines))
		}
		for _, l := range lines {
			objects = append(objects, l.Record.Object.ID)
		}
		pages++
		if token = next; token == "" {
			return objects, pages
		}
	}
}

func TestPagesHaveAllRecordsNewestFirst(t *testing.T) {
	r, _, want := newSink(t, 3000)
	for _, size := range []int{1, 7, 100, 5000} {
		if got, _ := all(t, r, size); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %d records, want %d in another order or number", size, len(got), len(want))
		}
	}
}

// TestPageScansALimitedPart limits what a page scans to the minimum.
func TestPageScansALimitedPart(t *testing.T) {
	r, _, want := newSink(t, 8000)
	r.scanLimit = 1
	got, pages := all(t, r, 8000)
	if !slices.Equal(got, want) || pages < 2 {
		t.Errorf("%d records on %d pages, want %d", len(got), pages, len(want))
	}
}

func TestEmptySinkHasNoRecords(t *testing.T) {
	lines, next, err := New(sink.FileAt(t.TempDir()), nil, nil).Page(t.Context(), "mine", "", 10)
	if err != nil || next != "" || len(lines) != 0 {
		t.Errorf("%v, %q, %v", lines, next, err)
	}
	if _, _, err := New(sink.FileAt(filepath.Join(t.TempDir(), "missing")), nil, nil).Page(t.Context(), "mine", "", 10); err == nil {
		t.Error("a missing sink has no records")
	}
}

func TestForeignTokensAreRefused(t *testing.T) {
	r, _, _ := newSink(t, 100)
	_, token, err := r.Page(t.Context(), "mine", "", 1)
	if err != nil || token == "" {
		t.Fatal(token, err)
	}
	for _, token := range []string{"x", "e30", encode(map[string]place{"../../etc/passwd": {End: 1}}), encode(map[string]place{"admin-00000000000000aa": {End: 1}}),
		encode(map[string]place{"admin-00000000000000aa": {End: -1}}), encode(map[string]place{"admin-00000000000000aa": {End: 1 << 40}}), encode(map[string]place{"admin-00000000000000ff": {End: 10}})} {
		if _, _, err := r.Page(t.Context(), "mine", token, 1); !errors.Is(err, ErrToken) {
			t.Errorf("the token %q: %v", token, err)
		}
	}
}

// TestLineOfLaterReleaseHidesNoRecord adds a line of a kind that this release does not have, and that names the cluster.
func TestLineOfLaterReleaseHidesNoRecord(t *testing.T) {
	r, dir, want := newSink(t, 60)
	path := filepath.Join(dir, "admin-00000000000000aa.jsonl")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(content), "\n")
	last := strings.Replace(lines[len(lines)-2], `"kind":"record"`, `"kind":"notice","about":"mine"`, 1)
	hashed := last[:strings.LastIndex(last, `,"hash":"`)]
	later := fmt.Sprintf("%s,\"hash\":\"%x\"}\n", hashed, sha256.Sum256([]byte(hashed)))
	if _, err := audit.ParseLine([]byte(strings.TrimSuffix(later, "\n"))); !errors.Is(err, audit.ErrUnknownKind) {
		t.Fatalf("the line of a later release: %v", err)
	}
	if err := os.WriteFile(path, append(content, later...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := all(t, r, 100); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestChangedRecordIsNotShown changes a record about the cluster, and adds an incomplete line.
func TestChangedRecordIsNotShown(t *testing.T) {
	r, dir, want := newSink(t, 60)
	path := filepath.Join(dir, "admin-00000000000000aa.jsonl")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(slices.Clone(content), `{"kind":"rec`...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := all(t, r, 100); !slices.Equal(got, want) {
		t.Errorf("with an incomplete line: %v, want %v", got, want)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(content), `"outcome":"succeeded"`, `"outcome":"succeedeD"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Page(t.Context(), "mine", "", 100); !errors.Is(err, audit.ErrChanged) {
		t.Errorf("a changed record: %v", err)
	}
}

// chain is the log of one writer with records about the cluster "mine".
type chain struct {
	dir, writer string
	content     []byte
	at          audit.Position
	records     int
}

// add appends records with valid hashes.
func (c *chain) add(t *testing.T, records int) {
	t.Helper()
	for range records {
		encoded, err := audit.EncodeRecord(audit.Record{Action: "clusters.dump", Outcome: audit.Succeeded, Object: audit.Object{ID: fmt.Sprint(c.records), Cluster: "mine"}, Reason: strings.Repeat("r", 500)})
		if err != nil {
			t.Fatal(err)
		}
		c.content, c.at = audit.AppendRecord(c.content, audit.Head{Writer: c.writer, Time: began.Add(time.Duration(c.records) * time.Second)}, c.at, audit.Entry{Record: encoded})
		c.records++
	}
	c.store(t, c.writer+".jsonl", c.content)
}

// confirm appends a checkpoint, and stores it in the witness if it is witnessed.
func (c *chain) confirm(t *testing.T, key *audit.SigningKey, witnessed bool) {
	t.Helper()
	begin := len(c.content)
	var err error
	if c.content, c.at, err = audit.AppendCheckpoint(c.content, audit.Head{Writer: c.writer, Time: began}, c.at, key); err != nil {
		t.Fatal(err)
	}
	c.store(t, c.writer+".jsonl", c.content)
	if witnessed {
		c.store(t, c.writer+".checkpoint", c.content[begin:])
	}
}

func (c *chain) store(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAppendedRecordsAreNotConfirmed appends records with valid hashes behind the checkpoint that the witness has, as somebody who can write the sink may: alone, with a
// checkpoint that the witness does not have, with the numbers of earlier lines, and more than a page scans. They are not confirmed, and all earlier ones are.
func TestAppendedRecordsAreNotConfirmed(t *testing.T) {
	key, err := audit.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	const records = 20
	for name, forge := range map[string]func(t *testing.T, c *chain){
		"records":                func(t *testing.T, c *chain) { c.add(t, 10) },
		"more than a page":       func(t *testing.T, c *chain) { c.add(t, 1000) },
		"with a checkpoint":      func(t *testing.T, c *chain) { c.add(t, 10); c.confirm(t, key, false) },
		"with numbers of others": func(t *testing.T, c *chain) { c.at = audit.Position{}; c.add(t, 10) },
	} {
		for _, size := range []int{1, 7, 5000} {
			t.Run(fmt.Sprintf("%s, pages of %d", name, size), func(t *testing.T) {
				c := &chain{dir: t.TempDir(), writer: "admin-00000000000000aa"}
				r := New(sink.FileAt(c.dir), sink.FileWitnessAt(c.dir), nil)
				r.scanLimit = 1
				c.confirm(t, key, true)
				c.add(t, records)
				c.confirm(t, key, true)
				forge(t, c)
				forged, number := c.records-records, c.records
				for token := ""; ; {
					page, next, err := r.Page(t.Context(), "mine", token, size)
					if err != nil {
						t.Fatal(err)
					}
					for _, got := range page {
						number--
						if got.Line.Record.Object.ID != fmt.Sprint(number) || got.Confirmed != (number < c.records-forged) {
							t.Fatalf("record %s is confirmed: %t, want record %d of %d", got.Line.Record.Object.ID, got.Confirmed, number, records)
						}
					}
					if token = next; token == "" {
						break
					}
				}
				if number != 0 {
					t.Errorf("%d records are missing", number)
				}
			})
		}
	}
}

// TestLaterCheckpointConfirms confirms records between two pages.
func TestLaterCheckpointConfirms(t *testing.T) {
	key, err := audit.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &chain{dir: t.TempDir(), writer: "admin-00000000000000aa"}
	r := New(sink.FileAt(c.dir), sink.FileWitnessAt(c.dir), nil)
	c.add(t, 4)
	for token, want := "", false; ; want = true {
		page, next, err := r.Page(t.Context(), "mine", token, 2)
		if err != nil || len(page) != 2 || page[0].Confirmed != want || page[1].Confirmed != want {
			t.Fatalf("%+v, %v, want 2 records that are confirmed: %t", page, err, want)
		}
		if token = next; token == "" {
			break
		}
		c.add(t, 1)
		c.confirm(t, key, true)
	}
}

// TestForeignCheckpointConfirmsNothing appends a record and a checkpoint with another key to the log and to the witness, as each service may. A Reader with the keys
// does not confirm the record.
func TestForeignCheckpointConfirmsNothing(t *testing.T) {
	keys, signers := audit.Keys{}, make([]*audit.SigningKey, 2)
	for i := range signers {
		var err error
		if signers[i], err = audit.GenerateKey(); err != nil {
			t.Fatal(err)
		}
	}
	keys.Trust("admin", signers[0])
	keys.Trust("frontend", signers[1])
	c := &chain{dir: t.TempDir(), writer: "admin-00000000000000aa"}
	r := New(sink.FileAt(c.dir), sink.FileWitnessAt(c.dir), func() (audit.Keys, error) { return keys, nil })
	for _, signer := range signers {
		c.add(t, 1)
		c.confirm(t, signer, true)
		page, _, err := r.Page(t.Context(), "mine", "", 1)
		if err != nil || len(page) != 1 || page[0].Confirmed != (signer == signers[0]) {
			t.Errorf("%+v, %v", page, err)
		}
	}
}
