package recording_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var (
	start = time.Date(2026, 11, 25, 4, 0, 0, 0, time.UTC)
	facts = recording.Facts{ID: "0a1b2c3d-0001-4002-8003-0123456789ab", SessionID: "s", ClusterUID: "c", ResourceID: "/a<b>", Owner: recording.Person{Name: "alice", ObjectID: "o"},
		Reason: "it is slow", Start: start, Kind: "pods/exec", Namespace: "default", Pod: "a", Container: "main", TTY: true}
)

func newPair(t testing.TB) (*seal.PublicKeys, *seal.PrivateKeys) {
	t.Helper()
	public, private, err := seal.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

// signing signs the recordings of all tests, and signers verifies that.
var signing, signers = newSigner()

func newSigner() (*audit.SigningKey, audit.Keys) {
	key, err := audit.GenerateKey()
	if err != nil {
		panic(err)
	}
	keys := audit.Keys{}
	keys.Trust(string(mesh.GatewayAccess), key)
	return key, keys
}

func at(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * time.Millisecond) }

// record returns a log with events of all kinds, without its end.
func record(t testing.TB, keys *seal.PublicKeys) (*recording.Writer, []byte) {
	t.Helper()
	w, log, err := recording.NewWriter(keys, signing, facts, []string{"sh", "-c", "echo \"a b\"\x1b[2J"})
	if err != nil {
		t.Fatal(err)
	}
	log = append(log, w.Resize(at(1), 120, 40)...)
	log = append(log, w.Data(at(10), recording.Stdin, []byte("ls\r"))...)
	log = append(log, w.Data(at(20), recording.Stdout, []byte("caf\xc3"))...) // the first byte of é
	log = append(log, w.Data(at(25), recording.Stderr, []byte("error\n"))...)
	log = append(log, w.Data(at(30), recording.Stdout, []byte("\xa9 \xff\x1b[0m"))...)
	log = append(log, w.Data(at(40), recording.Stdout, []byte("\xe2\x82"))...) // an incomplete character at the end
	return w, append(log, w.Marker(at(50), `{"status":"Success"}`)...)
}

// read returns the header and the events of a log.
func read(t testing.TB, log []byte, keys *seal.PrivateKeys) (recording.Header, []recording.Event, *recording.Reader) {
	t.Helper()
	r := must.Get(recording.NewReader(bytes.NewReader(log), keys, signers))(t)
	var text bytes.Buffer
	must.Do(t, r.WriteAsciicast(&text))
	header, events := parse(t, text.Bytes())
	return header, events, r
}

func parse(t testing.TB, text []byte) (recording.Header, []recording.Event) {
	t.Helper()
	lines := slices.Collect(bytes.Lines(text))
	header := must.Get(recording.ParseHeader(lines[0]))(t)
	var events []recording.Event
	for _, line := range lines[1:] {
		e, err := recording.ParseEvent(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return header, events
}

func TestRecordingIsAsciicast(t *testing.T) {
	public, private := newPair(t)
	w, log := record(t, public)
	log = append(log, w.End(recording.End{Time: at(60), Reason: "The client has closed the connection."})...)
	header, events, r := read(t, log, private)
	if want := (recording.Header{Version: 2, Width: 120, Height: 40, Timestamp: start.Unix(), Title: `exec default/a -c main -- sh -c "echo \"a b\"\x1b[2J"`}); header != want {
		t.Errorf("the header is %+v, want %+v", header, want)
	}
	ms := time.Millisecond
	want := []recording.Event{{ms, "r", "120x40"}, {10 * ms, "i", "ls\r"}, {20 * ms, "o", "caf"}, {25 * ms, "o", "error\n"}, {30 * ms, "o", "é \ufffd\x1b[0m"},
		{50 * ms, "m", `{"status":"Success"}`}, {60 * ms, "o", "\ufffd\ufffd"}, {60 * ms, "m", "The client has closed the connection."}}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(facts, r.Facts()); diff != "" {
		t.Error(diff)
	}
	if end := r.End(); end == nil || !end.Time.Equal(at(60)) || end.Reason != "The client has closed the connection." {
		t.Errorf("the end is %+v", end)
	}
	stored := stored(t, log)
	for _, secret := range []string{`"i","ls`, `"o","caf`, "echo", "Success"} {
		if bytes.Contains(stored, []byte(secret)) {
			t.Errorf("the log has %q in clear text", secret)
		}
	}
}

// stored returns a log with the contents of its lines, whose encoding would hide a text. Tests search it for texts of at least four bytes: a shorter
// one occurs in encrypted data by chance.
func stored(t testing.TB, log []byte) []byte {
	t.Helper()
	all := bytes.Clone(log)
	for content := range bytes.Lines(log) {
		var line struct {
			Content []byte `json:"c"`
		}
		must.Do(t, json.Unmarshal(content, &line))
		all = append(append(all, '\n'), line.Content...)
	}
	return all
}

// TestLongMessages records messages that need several events. Their characters have the longest encoding.
func TestLongMessages(t *testing.T) {
	public, private := newPair(t)
	for name, text := range map[string]string{"text": strings.Repeat("0123456789", 20_000), "zeros": strings.Repeat("\x00", 200_000), "characters": strings.Repeat("x€", 50_000)} {
		t.Run(name, func(t *testing.T) {
			w, log, err := recording.NewWriter(public, signing, facts, []string{strings.Repeat("\x00", 64<<10)})
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, w.Data(at(1), recording.Stdout, []byte(text))...)
			_, events, _ := read(t, log, private)
			var got strings.Builder
			for _, e := range events {
				got.WriteString(e.Data)
			}
			if got.String() != text || len(events) < 5 {
				t.Errorf("%d bytes in %d events, want %d bytes", got.Len(), len(events), len(text))
			}
		})
	}
}

// TestEveryPrefixCanBeRead cuts a log at each byte, as the end of a process does.
func TestEveryPrefixCanBeRead(t *testing.T) {
	public, private := newPair(t)
	w, log := record(t, public)
	log = append(log, w.End(recording.End{Time: at(60), Reason: "."})...)
	var whole bytes.Buffer
	r := must.Get(recording.NewReader(bytes.NewReader(log), private, signers))(t)
	must.Do(t, r.WriteAsciicast(&whole))
	first := bytes.IndexByte(log, '\n') + 1
	second := first + bytes.IndexByte(log[first:], '\n') + 1
	third := second + bytes.IndexByte(log[second:], '\n') + 1
	for size := range log {
		r, err := recording.NewReader(bytes.NewReader(log[:size]), private, signers)
		if size < first {
			if !errors.Is(err, recording.ErrFormat) {
				t.Errorf("the first %d bytes: %v", size, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		err = r.WriteAsciicast(&text)
		if size < second {
			if !errors.Is(err, recording.ErrFormat) {
				t.Errorf("the first %d bytes: %v", size, err)
			}
			continue
		}
		// Before the size of the terminal is known, the header has the default one.
		if err != nil || size >= third && !bytes.HasPrefix(whole.Bytes(), text.Bytes()) || r.End() != nil {
			t.Errorf("the first %d bytes: %q, %v, end %v", size, &text, err, r.End())
		}
	}
}

// TestChangesAreNoticed changes, removes, repeats and exchanges what a log has.
func TestChangesAreNoticed(t *testing.T) {
	public, private := newPair(t)
	w, log := record(t, public)
	log = append(log, w.End(recording.End{Time: at(60), Reason: "."})...)
	lines := slices.Collect(bytes.Lines(log))
	_, otherKeys := newPair(t)
	other, otherLog := record(t, public)
	otherLines := slices.Collect(bytes.Lines(append(otherLog, other.End(recording.End{Time: at(60), Reason: "."})...)))
	with := func(change func(lines [][]byte) [][]byte) []byte { return bytes.Join(change(slices.Clone(lines)), nil) }
	cases := map[string][]byte{
		"a line is removed":           with(func(l [][]byte) [][]byte { return slices.Delete(l, 3, 4) }),
		"a line is repeated":          with(func(l [][]byte) [][]byte { return slices.Insert(l, 3, l[3]) }),
		"two lines are exchanged":     with(func(l [][]byte) [][]byte { l[3], l[4] = l[4], l[3]; return l }),
		"a line of another recording": with(func(l [][]byte) [][]byte { l[3] = otherLines[3]; return l }),
		"the facts of another":        with(func(l [][]byte) [][]byte { l[0] = otherLines[0]; return l }),
		"a line after the end":        with(func(l [][]byte) [][]byte { return append(l, l[3]) }),
		"a line is made the last": with(func(l [][]byte) [][]byte {
			l[3] = bytes.Replace(l[3], []byte("}"), []byte(`,"end":{"reason":"."}}`), 1)
			return l[:4]
		}),
		"the last line is made one": with(func(l [][]byte) [][]byte {
			last := l[len(l)-1]
			return append(l[:len(l)-1], append(last[:bytes.IndexByte(last, ',')], "}\n"...))
		}),
		"the engineer is changed":      bytes.Replace(log, []byte("alice"), []byte("mallory"), 1),
		"the reason of the end":        bytes.Replace(log, []byte(`"reason":"."`), []byte(`"reason":"x"`), 1),
		"an empty line":                with(func(l [][]byte) [][]byte { return slices.Insert(l, 3, []byte("\n")) }),
		"another format":               bytes.Replace(log, []byte(".v1"), []byte(".v2"), 1),
		"the log of an audit":          []byte(`{"writer":"admin-0123456789abcdef"}` + "\n"),
		"a line that is far too long":  append(slices.Clone(lines[0]), bytes.Repeat([]byte("x"), 3<<20)...),
		"the first line is incomplete": log[:20],
	}
	for i := range lines {
		for _, position := range []int{len(lines[i]) / 2, len(lines[i]) - 4} {
			changed := bytes.Join(lines, nil)
			offset := len(bytes.Join(lines[:i], nil)) + position
			changed[offset] ^= 1
			if changed[offset] != '\n' {
				cases["a bit of line "+string(rune('0'+i))+" before "+string(lines[i][position:])] = changed
			}
		}
	}
	for name, content := range cases {
		r, err := recording.NewReader(bytes.NewReader(content), private, signers)
		if err == nil {
			err = r.WriteAsciicast(io.Discard)
		}
		if !errors.Is(err, recording.ErrChanged) && !errors.Is(err, recording.ErrFormat) && !errors.Is(err, recording.ErrUnsigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := recording.NewReader(bytes.NewReader(log), otherKeys, signers); !errors.Is(err, recording.ErrChanged) {
		t.Errorf("other keys: %v", err)
	}
}

func TestNamesOfLogs(t *testing.T) {
	name := recording.LogName(facts.ID)
	if !audit.ValidWriter(name) {
		t.Errorf("%s is not a valid name of a log", name)
	}
	if id, err := recording.IDOf(name); err != nil || id != facts.ID {
		t.Errorf("the ID of %s is %s: %v", name, id, err)
	}
	for _, other := range []string{"", "recording-0123456789abcdef", "admin-0123456789abcdef", name + "0", strings.ToUpper(name)} {
		if id, err := recording.IDOf(other); err == nil {
			t.Errorf("%q is the log of %s", other, id)
		}
	}
	for _, id := range []string{"", "../etc/passwd", strings.ToUpper(facts.ID), facts.ID + "\n"} {
		if recording.ValidID(id) {
			t.Errorf("%q is valid", id)
		}
	}
}

// FuzzReader reads arbitrary logs: no content is returned that was not written, and nothing panics.
func FuzzReader(f *testing.F) {
	public, private := newPair(f)
	w, log := record(f, public)
	log = append(log, w.End(recording.End{Time: at(60), Reason: "."})...)
	f.Add(log)
	f.Add(log[:len(log)/2])
	f.Add([]byte(`{"format":"hcpmesh.recording.v1","facts":{"id":"0a1b2c3d-0001-4002-8003-0123456789ab"},"key":""}` + "\n"))
	f.Add([]byte("{}\n{}\n"))
	var whole bytes.Buffer
	r := must.Get(recording.NewReader(bytes.NewReader(log), private, signers))(f)
	must.Do(f, r.WriteAsciicast(&whole))
	f.Fuzz(func(t *testing.T, content []byte) {
		for i, line := range slices.Collect(bytes.Lines(content)) {
			_, _ = recording.ParseLine(line, i == 0)
		}
		r, err := recording.NewReader(bytes.NewReader(content), private, signers)
		if err != nil {
			return
		}
		var text bytes.Buffer
		if r.WriteAsciicast(&text) != nil {
			return
		}
		// The header of a log without the size of the terminal has another size.
		_, events, _ := bytes.Cut(text.Bytes(), []byte("\n"))
		if _, want, _ := bytes.Cut(whole.Bytes(), []byte("\n")); !bytes.HasPrefix(want, events) {
			t.Errorf("read %q", &text)
		}
	})
}

// FuzzEvent parses arbitrary lines of an asciicast.
func FuzzEvent(f *testing.F) {
	for _, line := range []string{`[1.5, "o", "x"]`, `[1e400, "o", "x"]`, `[-1, "o", "x"]`, `[1, "r", "80x24"]`, `[1, "r", "0x99999"]`, `{"version":2}`, `[]`, `null`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		_, _ = recording.ParseHeader(line)
		e, err := recording.ParseEvent(line)
		if err != nil {
			return
		}
		if e.Time < 0 {
			t.Errorf("the time is %s", e.Time)
		}
		if width, height, ok := e.Size(); ok && (width < 1 || height < 1 || width > 65535 || height > 65535) {
			t.Errorf("the size is %dx%d", width, height)
		}
	})
}
