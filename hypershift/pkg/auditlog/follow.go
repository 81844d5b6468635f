package auditlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
)

const (
	// LogName is the log's name in the folder of a hosted API server.
	LogName = "audit.log"
	// MaxMegabytes is the size at which an API server begins another file, MaxBackups how many it keeps besides.
	MaxMegabytes = 8
	MaxBackups   = 1
	// lookEvery is how often a log is looked at. An API server does not announce what it writes, and a file that did not grow
	// costs one system call.
	lookEvery = 500 * time.Millisecond
	// maxLine bounds a line that is read; a longer one is left out. Events at the level of metadata have a few hundred bytes.
	maxLine = 256 << 10
)

// Follow reads the log in a folder from its beginning, also what was begun before, and goes on until ctx is over; then it
// reads what there still is. Whoever takes the uses is told of the same again when another file is begun, or the log is
// followed anew, and must not block for long. A log that cannot be read is looked for again.
func Follow(ctx context.Context, folder string, used func(credentialuse.Use), log *slog.Logger) {
	f := &follower{folder: folder, used: used}
	defer f.close()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	failing := false
	for {
		ending := ctx.Err() != nil
		err := f.look()
		if err != nil && !failing {
			log.Warn("the audit log of a hosted API server cannot be read; it is tried again", "folder", filepath.Base(folder), "error", err)
		}
		failing = err != nil
		if ending {
			return
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// follower is at one place in a log.
type follower struct {
	folder string
	used   func(credentialuse.Use)

	file *os.File // nil before the first look
	// rest is the beginning of a line whose end is not there yet; skip says that it is too long to be kept.
	rest []byte
	skip bool
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close()
	}
}

// look reads what is new.
func (f *follower) look() error {
	path := filepath.Join(f.folder, LogName)
	if f.file == nil {
		if err := f.backups(); err != nil {
			return err
		}
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("opening the audit log: %w", err)
		}
		f.file = file
	}
	// Asked before the file is read: one that was replaced by then is not written to any more.
	current, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for the audit log: %w", err)
	}
	own, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("looking at the audit log: %w", err)
	}
	if err := f.read(f.file); err != nil {
		return err
	}
	if current == nil || os.SameFile(current, own) {
		return nil
	}
	// Another file was begun, or several: from the beginning, so that none is missed.
	f.close()
	f.file, f.rest, f.skip = nil, nil, false
	return f.look()
}

// backups reads the files that were begun before. Their names have the time of their end.
func (f *follower) backups() error {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return fmt.Errorf("looking for audit logs: %w", err)
	}
	base, extension, _ := strings.Cut(LogName, ".")
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); strings.HasPrefix(name, base+"-") && strings.HasSuffix(name, "."+extension) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		file, err := os.Open(filepath.Join(f.folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the oldest goes when there are too many
		}
		if err != nil {
			return fmt.Errorf("opening an audit log: %w", err)
		}
		err = f.read(file)
		_ = file.Close()
		f.rest, f.skip = nil, false
		if err != nil {
			return err
		}
	}
	return nil
}

// read takes all whole lines up to the end of a file.
func (f *follower) read(file *os.File) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := file.Read(buffer)
		f.take(buffer[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
	}
}

func (f *follower) take(text []byte) {
	for {
		line, after, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			f.keep(text)
			return
		}
		f.keep(line)
		if !f.skip {
			if use, ok := Parse(f.rest); ok {
				f.used(use)
			}
		}
		f.rest, f.skip = f.rest[:0], false
		text = after
	}
}

// keep adds to the line that is being read.
func (f *follower) keep(part []byte) {
	if f.skip || len(f.rest)+len(part) > maxLine {
		f.rest, f.skip = f.rest[:0], true
		return
	}
	f.rest = append(f.rest, part...)
}
