// Package sink defines the append-only storage to which writers export their audit chains, and the witness that keeps the
// checkpoints of each chain in a second storage. File is the storage of a local region and of tests.
package sink

import (
	"context"
	"errors"
	"io"
	"time"
)

// Log is append-only storage: one sequence of bytes for each writer.
type Log interface {
	// Size returns the length of a writer's log in bytes, 0 if it does not exist.
	Size(ctx context.Context, writer string) (int64, error)
	// Append adds content to the end of a writer's log, durably. It returns ErrConflict if the log does not have the length
	// offset. After another error the log may have a part of the content.
	Append(ctx context.Context, writer string, offset int64, content []byte) error
	// Open returns the content of a writer's log from a byte offset. It does not include an Append in progress.
	Open(ctx context.Context, writer string, offset int64) (io.ReadCloser, error)
}

// ErrConflict is the error for a log that does not have the expected length: something else has written or cut it, or an earlier
// Append has stored a part of its content.
var ErrConflict = errors.New("the audit log in the sink does not have the expected length")

// Reader reads the logs of all writers.
type Reader interface {
	// Writers returns the names of the writers that have a log, sorted.
	Writers(ctx context.Context) ([]string, error)
	// Open and Size are those of Log.
	Open(ctx context.Context, writer string, offset int64) (io.ReadCloser, error)
	Size(ctx context.Context, writer string) (int64, error)
	// Modified returns the time of the last Append to a writer's log, by the clock of the storage.
	Modified(ctx context.Context, writer string) (time.Time, error)
}

// Witness keeps the checkpoints of each writer. It must be in other storage than the Log, with other rights, so that nobody can cut the
// end of a log, or replace it, unnoticed.
type Witness interface {
	// Put adds a checkpoint of a writer. The line includes its newline.
	Put(ctx context.Context, writer string, line []byte) error
}

// WitnessReader reads what a Witness keeps. The content that Open returns is the checkpoints of a writer, in the order of Put.
type WitnessReader interface {
	Reader
	// Checkpoint returns the latest checkpoint of a writer, with its newline; nil if the Witness has none.
	Checkpoint(ctx context.Context, writer string) ([]byte, error)
}
