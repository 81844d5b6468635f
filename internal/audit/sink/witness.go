package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// maxCheckpoint is more than the length of a checkpoint in bytes.
const maxCheckpoint = 4 << 10

// Storage is a Log that can be read.
type Storage interface {
	Log
	Reader
}

// WitnessLog is a Witness and a WitnessReader in append-only storage. It has a log of the checkpoints of each writer, so that nobody who may only append
// replaces one. It is safe for concurrent use.
type WitnessLog struct {
	Storage

	mu sync.Mutex
	// sizes are the lengths of the logs to which this process appends.
	sizes map[string]int64
}

// NewWitnessLog returns the Witness in a storage, which must have nothing else.
func NewWitnessLog(storage Storage) *WitnessLog {
	return &WitnessLog{Storage: storage, sizes: map[string]int64{}}
}

// checkpointSuffix is the suffix of the files of a witness. Releases before WitnessLog replaced the only line of a file.
const checkpointSuffix = ".checkpoint"

// NewFileWitness returns a Witness in a folder, which it creates.
func NewFileWitness(dir string) (*WitnessLog, error) {
	if _, err := NewFile(dir); err != nil {
		return nil, err
	}
	return FileWitnessAt(dir), nil
}

// FileWitnessAt returns the Witness in a folder. Its methods return an error while the folder does not exist.
func FileWitnessAt(dir string) *WitnessLog { return NewWitnessLog(&File{dir, checkpointSuffix}) }

// OpenFileWitness returns the Witness in a folder, which must exist.
func OpenFileWitness(dir string) (*WitnessLog, error) {
	if _, err := OpenFile(dir); err != nil {
		return nil, err
	}
	return FileWitnessAt(dir), nil
}

// Put implements Witness. A checkpoint that is the last one already is not stored again.
func (w *WitnessLog) Put(ctx context.Context, writer string, line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	size, known := w.sizes[writer]
	if !known {
		last, part, all, err := w.end(ctx, writer)
		switch {
		case err != nil:
			return err
		case bytes.Equal(last, line) && len(part) == 0:
			w.sizes[writer] = all
			return nil
		case bytes.HasPrefix(line, part):
			line = line[len(part):]
		default:
			line = append([]byte("\n"), line...)
		}
		size = all
	}
	delete(w.sizes, writer)
	if err := w.Append(ctx, writer, size, line); err != nil {
		return fmt.Errorf("writing to the audit witness: %w", err)
	}
	w.sizes[writer] = size + int64(len(line))
	return nil
}

// Checkpoint implements WitnessReader.
func (w *WitnessLog) Checkpoint(ctx context.Context, writer string) ([]byte, error) {
	last, _, _, err := w.end(ctx, writer)
	return last, err
}

// end returns the last complete line of a writer's log, the part of a line that follows, and the length of the log.
func (w *WitnessLog) end(ctx context.Context, writer string) (last, part []byte, size int64, err error) {
	if size, err = w.Size(ctx, writer); err != nil || size == 0 {
		return nil, nil, 0, err
	}
	begin := max(size-2*maxCheckpoint, 0)
	content, err := w.Open(ctx, writer, begin)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	text := make([]byte, size-begin)
	if _, err := io.ReadFull(content, text); err != nil {
		return nil, nil, 0, fmt.Errorf("reading the audit witness: %w", err)
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	if end > 0 {
		last = text[bytes.LastIndexByte(text[:end-1], '\n')+1 : end]
	}
	return last, text[end:], size, nil
}

// Writers implements Reader. It leaves out what is not the name of a writer.
func (w *WitnessLog) Writers(ctx context.Context) ([]string, error) {
	all, err := w.Storage.Writers(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the audit witness: %w", err)
	}
	var writers []string
	for _, name := range all {
		if audit.ValidWriter(name) {
			writers = append(writers, name)
		}
	}
	return writers, nil
}
