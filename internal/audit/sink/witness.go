package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/durable"
)

const checkpointSuffix = ".checkpoint"

// FileWitness is a Witness in a folder, with one file for each writer.
type FileWitness struct {
	dir string
}

// NewFileWitness returns a Witness in a folder, which it creates.
func NewFileWitness(dir string) (*FileWitness, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("creating the folder of the audit witness: %w", err)
	}
	return &FileWitness{dir}, nil
}

// FileWitnessAt returns the Witness in a folder. Its methods return an error while the folder does not exist.
func FileWitnessAt(dir string) *FileWitness { return &FileWitness{dir} }

// OpenFileWitness returns the Witness in a folder, which must exist.
func OpenFileWitness(dir string) (*FileWitness, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("opening the audit witness: %w", err)
	}
	return &FileWitness{dir}, nil
}

// Put implements Witness.
func (w *FileWitness) Put(_ context.Context, writer string, line []byte) error {
	if !audit.ValidWriter(writer) {
		return fmt.Errorf("%q is not the name of an audit writer", writer)
	}
	if err := durable.Replace(filepath.Join(w.dir, writer+checkpointSuffix), line, 0o640); err != nil {
		return fmt.Errorf("writing to the audit witness: %w", err)
	}
	return nil
}

// Checkpoint implements WitnessReader.
func (w *FileWitness) Checkpoint(_ context.Context, writer string) ([]byte, error) {
	line, err := os.ReadFile(filepath.Join(w.dir, writer+checkpointSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(w.dir) // a missing folder is storage that is not mounted
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit witness: %w", err)
	}
	return line, nil
}

// Checkpoints implements WitnessReader.
func (w *FileWitness) Checkpoints(context.Context) (map[string][]byte, error) {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the audit witness: %w", err)
	}
	lines := map[string][]byte{}
	for _, e := range entries {
		writer, ok := strings.CutSuffix(e.Name(), checkpointSuffix)
		if !ok {
			continue
		}
		if lines[writer], err = os.ReadFile(filepath.Join(w.dir, e.Name())); err != nil {
			return nil, fmt.Errorf("reading the audit witness: %w", err)
		}
	}
	return lines, nil
}
