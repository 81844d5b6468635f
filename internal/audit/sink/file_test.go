package sink_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

const writer = "admin-0123456789abcdef"

func TestFileAppendsAtTheEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sink")
	log, err := sink.NewFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if size, err := log.Size(t.Context(), writer); err != nil || size != 0 {
		t.Errorf("a missing log has size %d, %v", size, err)
	}
	for _, step := range []struct {
		offset int64
		text   string
		err    error
	}{{5, "x", sink.ErrConflict}, {0, "hello", nil}, {0, "again", sink.ErrConflict}, {5, " world", nil}, {12, "x", sink.ErrConflict}} {
		if err := log.Append(t.Context(), writer, step.offset, []byte(step.text)); !errors.Is(err, step.err) {
			t.Errorf("appending %q at %d: %v, want %v", step.text, step.offset, err, step.err)
		}
	}
	content, err := log.Open(t.Context(), writer, 6)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if text, err := io.ReadAll(content); err != nil || string(text) != "world" {
		t.Errorf("read %q, %v", text, err)
	}
	if names, err := log.Writers(t.Context()); err != nil || !slices.Equal(names, []string{writer}) {
		t.Errorf("the writers are %v, %v", names, err)
	}
}

// TestMissingFolderIsNotAnEmptySink removes the folder, as if it were not mounted: its logs must not look empty.
func TestMissingFolderIsNotAnEmptySink(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sink")
	log, err := sink.NewFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if size, err := log.Size(t.Context(), writer); err == nil {
		t.Errorf("the log of a missing sink has size %d", size)
	}
	if err := log.Append(t.Context(), writer, 0, []byte("x")); err == nil || errors.Is(err, sink.ErrConflict) {
		t.Errorf("appending to a missing sink: %v", err)
	}
	if _, err := sink.OpenFile(dir); err == nil {
		t.Error("a missing sink was opened")
	}
}

func TestFileRefusesOtherNames(t *testing.T) {
	dir := t.TempDir()
	log, err := sink.NewFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	witness, err := sink.NewFileWitness(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "../admin-0123456789abcdef", "admin", "Admin-0123456789abcdef"} {
		if err := log.Append(t.Context(), name, 0, []byte("x")); err == nil {
			t.Errorf("a log has the name %q", name)
		}
		if err := witness.Put(t.Context(), name, []byte("x")); err == nil {
			t.Errorf("a checkpoint has the name %q", name)
		}
	}
}

func TestWitnessKeepsTheLatest(t *testing.T) {
	witness, err := sink.NewFileWitness(filepath.Join(t.TempDir(), "witness"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"first\n", "second\n"} {
		if err := witness.Put(t.Context(), writer, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := witness.Checkpoints(t.Context())
	if err != nil || len(lines) != 1 || string(lines[writer]) != "second\n" {
		t.Errorf("the witness has %q, %v", lines, err)
	}
}
