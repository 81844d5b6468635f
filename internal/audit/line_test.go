package audit_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const chainWriter = "admin-0123456789abcdef"

var now = time.Date(2026, 3, 1, 8, 0, 0, 123456789, time.UTC)

func newKey(t testing.TB) *audit.SigningKey {
	t.Helper()
	return must.Get(audit.GenerateKey())(t)
}

func encode(t testing.TB, r audit.Record) []byte {
	t.Helper()
	return must.Get(audit.EncodeRecord(r))(t)
}

func TestLinesAreDecoded(t *testing.T) {
	record := audit.Record{
		Peer: "backend", Person: audit.Person{Name: "ada@example.com", ObjectID: "o", TenantID: "t", Role: "operator", Elevation: "e"}, Action: "clusters.dump",
		Object: audit.Object{Kind: "cluster", ID: "UID", ResourceID: "/subscriptions/x", Cluster: "uid"}, Reason: "a \"reason\"\nwith <lines>", Ticket: "INC-1",
		Outcome: audit.Succeeded, Code: "c", Operation: "op", Request: "rq", Trace: "tr",
	}
	first, at := audit.AppendRecord(nil, audit.Head{Writer: chainWriter, Time: now}, audit.Position{}, audit.Entry{Record: encode(t, record)})
	key := newKey(t)
	both, end, err := audit.AppendCheckpoint(bytes.Clone(first), audit.Head{Writer: chainWriter, Time: now}, at, key)
	if err != nil {
		t.Fatal(err)
	}
	if at.Offset != int64(len(first)) || end.Offset != int64(len(both)) || end.Sequence != 2 {
		t.Errorf("the positions are %+v and %+v, the lines have %d and %d bytes", at, end, len(first), len(both))
	}
	line := must.Get(audit.ParseLine(bytes.TrimSuffix(first, []byte("\n"))))(t)
	want := audit.Line{Kind: audit.RecordLine, Writer: chainWriter, Sequence: 1, Previous: audit.Genesis, Time: now, Record: &record, Hash: at.Hash}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Error(diff)
	}
	text := bytes.TrimSuffix(both[len(first):], []byte("\n"))
	checkpoint := must.Get(audit.ParseLine(text))(t)
	if !line.Follows(audit.Position{}) || !checkpoint.Follows(at) || checkpoint.Follows(end) || line.Follows(at) {
		t.Error("the order of the lines is not recognized")
	}
	keys := audit.Keys{}
	keys.Trust("admin", key)
	if err := keys.Verify(checkpoint, text); err != nil {
		t.Error(err)
	}
}

func TestSignaturesOfOtherKeysAreRefused(t *testing.T) {
	key := newKey(t)
	line, _, err := audit.AppendCheckpoint(nil, audit.Head{Writer: chainWriter, Time: now}, audit.Position{}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := bytes.TrimSuffix(line, []byte("\n"))
	checkpoint := must.Get(audit.ParseLine(text))(t)
	other := newKey(t)
	for reason, trust := range map[string]func(audit.Keys){
		"no key":                   func(audit.Keys) {},
		"another key":              func(k audit.Keys) { k.Trust("admin", other) },
		"the key of other service": func(k audit.Keys) { k.Trust("backend", key) },
	} {
		keys := audit.Keys{}
		trust(keys)
		if err := keys.Verify(checkpoint, text); err == nil {
			t.Errorf("%s: the signature was accepted", reason)
		}
	}
	keys := audit.Keys{}
	keys.Trust("admin", key)
	forged := bytes.Replace(text, []byte(`"sequence":1`), []byte(`"sequence":2`), 1)
	if err := keys.Verify(checkpoint, forged); err == nil {
		t.Error("a signature for other content was accepted")
	}
	signed, _, _ := bytes.Cut(text, []byte(`,"hash":"`))
	moved := append(bytes.Clone(signed), `,"sequence":9`...)
	sum := sha256.Sum256(moved)
	moved = fmt.Appendf(moved, `,"hash":"%x"}`, sum)
	later, err := audit.ParseLine(moved)
	if err != nil || later.Sequence != 9 {
		t.Fatalf("the line is %+v, %v", later, err)
	}
	if err := keys.Verify(later, moved); err == nil {
		t.Error("a member behind the signature was accepted")
	}
}

func TestRecordsAreBounded(t *testing.T) {
	long := audit.Record{Reason: strings.Repeat("ж", 10_000), Ticket: "\xff\x00", Action: "a", Outcome: audit.Failed, Object: audit.Object{Cluster: "ABC"}}
	line, _ := audit.AppendRecord(nil, audit.Head{Writer: chainWriter, Time: now}, audit.Position{}, audit.Entry{Record: encode(t, long)})
	got := must.Get(audit.ParseLine(bytes.TrimSuffix(line, []byte("\n"))))(t)
	if !utf8.ValidString(got.Record.Reason) || len(got.Record.Reason) > 4200 || len(got.Record.Reason) < 4000 || got.Record.Ticket != "\ufffd\x00" || got.Record.Object.Cluster != "abc" {
		t.Errorf("the record is %d bytes of reason, ticket %q, cluster %q", len(got.Record.Reason), got.Record.Ticket, got.Record.Object.Cluster)
	}
	full := audit.Record{}
	for _, text := range []*string{&full.Reason, &full.Ticket, &full.Action, &full.Outcome, &full.Person.Name, &full.Object.ID, &full.Peer, &full.Code, &full.Operation,
		&full.Request, &full.Trace, &full.Person.ObjectID, &full.Person.TenantID, &full.Person.Role, &full.Person.Elevation, &full.Object.Kind, &full.Object.ResourceID, &full.Object.Cluster} {
		*text = strings.Repeat("\x01", 10_000) // six bytes each in JSON
	}
	if line, _ := audit.AppendRecord(nil, audit.Head{Writer: chainWriter, Time: now}, audit.Position{}, audit.Entry{Record: encode(t, full)}); len(line) > 2*audit.MaxLine {
		t.Errorf("the line has %d bytes", len(line))
	}
}

func TestKeysAreLoaded(t *testing.T) {
	dir, key, second := t.TempDir(), newKey(t), newKey(t)
	path := filepath.Join(dir, "signing.key")
	must.Do(t, key.Create(path))
	if err := second.Create(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an existing key was overwritten: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key file has %v, %v", info.Mode(), err)
	}
	loaded, err := audit.LoadKey(path)
	if err != nil || loaded.ID() != key.ID() {
		t.Fatalf("loaded %v, %v", loaded, err)
	}
	public := filepath.Join(dir, "keys")
	must.Do(t, os.Mkdir(public, 0o700))
	var content []byte
	for _, k := range []*audit.SigningKey{second, key} {
		text := must.Get(k.PublicPEM())(t)
		content = append(content, text...)
	}
	must.Do(t, os.WriteFile(filepath.Join(public, "admin.pem"), content, 0o600))
	keys, err := audit.LoadKeys(public)
	if err != nil || keys["admin"][key.ID()].PublicKey == nil || keys["admin"][second.ID()].PublicKey == nil {
		t.Fatalf("the keys are %v, %v", keys, err)
	}
	for reason, text := range map[string]string{"no key": "", "a private key": string(mustRead(t, path)), "other content": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		must.Do(t, os.WriteFile(filepath.Join(public, "admin.pem"), []byte(text), 0o600))
		if _, err := audit.LoadKeys(public); err == nil {
			t.Errorf("%s was accepted", reason)
		}
	}
	if _, err := audit.LoadKeys(dir); err == nil {
		t.Error("a folder without keys was accepted")
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(path))(t)
}

// FuzzParseLine parses arbitrary lines, because everybody with write access to the sink can store one.
func FuzzParseLine(f *testing.F) {
	key := newKey(f)
	line, at := audit.AppendRecord(nil, audit.Head{Writer: chainWriter, Time: now}, audit.Position{}, audit.Entry{Record: encode(f, audit.Record{Action: "a", Outcome: audit.Accepted})})
	checkpoint, _, err := audit.AppendCheckpoint(nil, audit.Head{Writer: chainWriter, Time: now}, at, key)
	if err != nil {
		f.Fatal(err)
	}
	keys := audit.Keys{}
	keys.Trust("admin", key)
	f.Add(line[:len(line)-1])
	f.Add(checkpoint[:len(checkpoint)-1])
	f.Add([]byte(`{"kind":"record"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := audit.ParseLine(text)
		if err != nil {
			return
		}
		if !audit.ValidWriter(l.Writer) || l.Sequence == 0 || len(l.Hash) != 64 {
			t.Errorf("accepted %+v", l)
		}
		if keys.Verify(l, text) == nil && !bytes.Equal(text, checkpoint[:len(checkpoint)-1]) {
			t.Errorf("accepted the signature of %s", text)
		}
	})
}

// BenchmarkCheckpoint signs and verifies a checkpoint.
func BenchmarkCheckpoint(b *testing.B) {
	key := newKey(b)
	keys := audit.Keys{}
	keys.Trust("admin", key)
	for b.Loop() {
		line, _, err := audit.AppendCheckpoint(nil, audit.Head{Writer: chainWriter, Time: now}, audit.Position{}, key)
		if err != nil {
			b.Fatal(err)
		}
		text := line[:len(line)-1]
		parsed := must.Get(audit.ParseLine(text))(b)
		must.Do(b, keys.Verify(parsed, text))
	}
}
