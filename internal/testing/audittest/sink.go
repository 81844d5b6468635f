package audittest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

// The writers of the suite.
const (
	SinkWriter  = "admin-0123456789abcdef"
	otherWriter = "admin-0123456789abcdee"
)

// CheckSink checks an empty sink.
func CheckSink(t *testing.T, log sink.Storage) {
	ctx := t.Context()
	if size, err := log.Size(ctx, SinkWriter); err != nil || size != 0 {
		t.Errorf("a missing log has size %d, %v", size, err)
	}
	for _, step := range []struct {
		offset int64
		text   string
		err    error
	}{{5, "x", sink.ErrConflict}, {0, "hello", nil}, {0, "again", sink.ErrConflict}, {5, " world", nil}, {12, "x", sink.ErrConflict}, {11, "!", nil}} {
		if err := log.Append(ctx, SinkWriter, step.offset, []byte(step.text)); !errors.Is(err, step.err) {
			t.Errorf("appending %q at %d: %v, want %v", step.text, step.offset, err, step.err)
		}
	}
	first, err := log.Modified(ctx, SinkWriter)
	if err != nil || first.IsZero() {
		t.Errorf("the log was modified at %v, %v", first, err)
	}
	long := bytes.Repeat([]byte("0123456789abcdef"), 300<<10) // 4.7 MiB
	if err := log.Append(ctx, otherWriter, 0, long); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		writer string
		offset int64
		want   []byte
	}{{SinkWriter, 0, []byte("hello world!")}, {SinkWriter, 6, []byte("world!")}, {SinkWriter, 12, nil}, {otherWriter, 4<<20 - 3, long[4<<20-3:]}, {otherWriter, 0, long}} {
		content, err := log.Open(ctx, c.writer, c.offset)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(content)
		if err := errors.Join(err, content.Close()); err != nil || !bytes.Equal(text, c.want) {
			t.Errorf("%s from %d: %d bytes, want %d, %v", c.writer, c.offset, len(text), len(c.want), err)
		}
	}
	if size, err := log.Size(ctx, SinkWriter); err != nil || size != 12 {
		t.Errorf("the log has size %d, %v", size, err)
	}
	if last, err := log.Modified(ctx, otherWriter); err != nil || last.Before(first) {
		t.Errorf("a later append was at %v, an earlier one at %v, %v", last, first, err)
	}
	if _, err := log.Modified(ctx, "admin-0123456789abcdea"); err == nil {
		t.Error("a missing log has a time")
	}
	if names, err := log.Writers(ctx); err != nil || !slices.Equal(names, []string{otherWriter, SinkWriter}) {
		t.Errorf("the writers are %v, %v", names, err)
	}
	for _, name := range []string{"", "../" + SinkWriter, "admin", "Admin-0123456789abcdef"} {
		if err := log.Append(ctx, name, 0, []byte("x")); err == nil {
			t.Errorf("a log has the name %q", name)
		}
	}
}

// CheckWitness checks an empty witness. open returns the witness in its storage, as another process has it.
func CheckWitness(t *testing.T, open func() *sink.WitnessLog) {
	ctx, first := t.Context(), open()
	for _, line := range []string{"first\n", "second\n", "second\n"} {
		if err := first.Put(ctx, SinkWriter, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	// Another process stores the last line again, whose response was lost.
	witness := open()
	for _, line := range []string{"second\n", "third\n"} {
		if err := witness.Put(ctx, SinkWriter, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Put(ctx, SinkWriter, []byte("fourth\n")); err == nil {
		t.Error("a line was stored behind one of another process at once")
	}
	if err := first.Put(ctx, SinkWriter, []byte("fourth\n")); err != nil {
		t.Errorf("the repetition: %v", err)
	}
	const want = "first\nsecond\nsecond\nthird\nfourth\n"
	content, err := witness.Open(ctx, SinkWriter, 0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(content)
	if err := errors.Join(err, content.Close()); err != nil || string(text) != want {
		t.Errorf("the witness has %q, %v, want %q", text, err, want)
	}
	for writer, want := range map[string]string{SinkWriter: "fourth\n", otherWriter: ""} {
		if line, err := witness.Checkpoint(ctx, writer); err != nil || string(line) != want {
			t.Errorf("the checkpoint of %s is %q, %v, want %q", writer, line, err, want)
		}
	}
	if names, err := witness.Writers(ctx); err != nil || !slices.Equal(names, []string{SinkWriter}) {
		t.Errorf("the witness has the writers %v, %v", names, err)
	}
	if err := witness.Put(ctx, "../x", []byte("x")); err == nil {
		t.Error("a checkpoint has the name of a path")
	}
}
