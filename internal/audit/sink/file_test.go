package sink_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const writer = "admin-0123456789abcdef"

func TestFile(t *testing.T) {
	log := must.Get(sink.NewFile(filepath.Join(t.TempDir(), "sink")))(t)
	audittest.CheckSink(t, log)
}

// TestMissingFolderIsNotAnEmptySink removes the folder, as if it were not mounted: its logs must not look empty.
func TestMissingFolderIsNotAnEmptySink(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sink")
	log := must.Get(sink.NewFile(dir))(t)
	must.Do(t, os.Remove(dir))
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
	log := must.Get(sink.NewFile(dir))(t)
	witness := must.Get(sink.NewFileWitness(dir))(t)
	for _, name := range []string{"", "../admin-0123456789abcdef", "admin", "Admin-0123456789abcdef"} {
		if err := log.Append(t.Context(), name, 0, []byte("x")); err == nil {
			t.Errorf("a log has the name %q", name)
		}
		if err := witness.Put(t.Context(), name, []byte("x")); err == nil {
			t.Errorf("a checkpoint has the name %q", name)
		}
	}
}

func TestFileWitness(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "witness")
	must.Get(sink.NewFileWitness(dir))(t)
	audittest.CheckWitness(t, func() *sink.WitnessLog { return sink.FileWitnessAt(dir) })
}

// TestTornCheckpointIsCompleted stores a checkpoint behind a part of a line, which a full disk has left.
func TestTornCheckpointIsCompleted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, writer+".checkpoint")
	for line, want := range map[string]string{"second\n": "first\nsecond\n", "third\n": "first\nsec\nthird\n"} {
		must.Do(t, os.WriteFile(file, []byte("first\nsec"), 0o600))
		witness := sink.FileWitnessAt(dir)
		if last, err := witness.Checkpoint(t.Context(), writer); err != nil || string(last) != "first\n" {
			t.Errorf("the checkpoint is %q, %v, want the first", last, err)
		}
		must.Do(t, witness.Put(t.Context(), writer, []byte(line)))
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("the witness has %q, %v, want %q", got, err, want)
		}
	}
}
