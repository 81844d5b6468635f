package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

const logSuffix = ".jsonl"

// File is a Log in a folder, with one file for each writer. The operating system does not prevent changes of the files. A File is
// safe for concurrent use, also by several processes.
type File struct {
	dir, suffix string
}

// NewFile returns a Log in a folder, which it creates.
func NewFile(dir string) (*File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("creating the folder of the audit sink: %w", err)
	}
	return FileAt(dir), nil
}

// FileAt returns the Log in a folder. Its methods return an error while the folder does not exist.
func FileAt(dir string) *File { return &File{dir, logSuffix} }

// OpenFile returns the Log in a folder, which must exist.
func OpenFile(dir string) (*File, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the audit sink: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("opening the audit sink: %s is not a folder", dir)
	}
	return FileAt(dir), nil
}

func (f *File) path(writer string) (string, error) {
	if !audit.ValidWriter(writer) {
		return "", fmt.Errorf("%q is not the name of an audit writer", writer)
	}
	return filepath.Join(f.dir, writer+f.suffix), nil
}

// Size implements Log and Reader.
func (f *File) Size(_ context.Context, writer string) (int64, error) {
	path, err := f.path(writer)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A missing file and a missing folder differ: the sink must not look empty while it is not mounted.
		if _, err := os.Stat(f.dir); err != nil {
			return 0, fmt.Errorf("reading the audit sink: %w", err)
		}
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("reading the audit sink: %w", err)
	}
	return info.Size(), nil
}

// Append implements Log.
func (f *File) Append(_ context.Context, writer string, offset int64, content []byte) (err error) {
	path, err := f.path(writer)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return fmt.Errorf("opening the audit sink: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// Readers wait for the end of the write; see Open.
	if err := lock(file, unix.LOCK_EX); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("reading the audit sink: %w", err)
	}
	if info.Size() != offset {
		return fmt.Errorf("%w: %s has %d bytes, the writer has exported %d", ErrConflict, writer, info.Size(), offset)
	}
	if _, err := file.Write(content); err != nil {
		return fmt.Errorf("writing to the audit sink: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("writing to the audit sink: %w", err)
	}
	if offset > 0 {
		return nil
	}
	return disk.Sync(f.dir)
}

// Writers implements Reader.
func (f *File) Writers(context.Context) ([]string, error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the audit sink: %w", err)
	}
	var writers []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), f.suffix); ok {
			writers = append(writers, name)
		}
	}
	slices.Sort(writers)
	return writers, nil
}

// Open implements Reader.
func (f *File) Open(_ context.Context, writer string, offset int64) (io.ReadCloser, error) {
	// The file may have any name, because a verifier must read the files that no writer made.
	file, err := os.Open(filepath.Join(f.dir, filepath.Base(writer)+f.suffix))
	if err != nil {
		return nil, fmt.Errorf("reading the audit sink: %w", err)
	}
	size, err := completeSize(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return section{io.NewSectionReader(file, offset, max(size-offset, 0)), file}, nil
}

// Modified implements Reader.
func (f *File) Modified(_ context.Context, writer string) (time.Time, error) {
	info, err := os.Stat(filepath.Join(f.dir, filepath.Base(writer)+f.suffix))
	if err != nil {
		return time.Time{}, fmt.Errorf("reading the audit sink: %w", err)
	}
	return info.ModTime(), nil
}

// completeSize returns the size of a file between two appends.
func completeSize(file *os.File) (int64, error) {
	if err := lock(file, unix.LOCK_SH); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err := errors.Join(err, lock(file, unix.LOCK_UN)); err != nil {
		return 0, fmt.Errorf("reading the audit sink: %w", err)
	}
	return info.Size(), nil
}

type section struct {
	io.Reader
	io.Closer
}

func lock(file *os.File, how int) error {
	for {
		err := unix.Flock(int(file.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("locking a file of the audit sink: %w", err)
		}
	}
}
