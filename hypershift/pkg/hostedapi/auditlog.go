package hostedapi

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

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// auditLogName is the name of the log in the folder of a hosted API server.
	auditLogName = "audit.log"
	// auditLogMegabytes is the size at which an API server starts another file. auditLogBackups is the number of older
	// files that it keeps. Customers lose the lines of files that are removed before the log forwarder has read them.
	auditLogMegabytes = 8
	auditLogBackups   = 3
	// auditPollInterval is the interval of reads. An API server does not announce writes, and a file that did not grow costs
	// one system call.
	auditPollInterval = 500 * time.Millisecond
	// maxLineBytes bounds a line; longer lines are skipped. Events of the level Metadata have a few hundred bytes.
	maxLineBytes = 256 << 10
)

// followAuditLog reads the log in a folder from its beginning, including older files, and calls used for each use of a
// break-glass credential until ctx ends. Then it reads the rest of the log. It calls used again for the same uses after
// the log was rotated or when it is called again. used must not block for long. It retries if the log cannot be read.
//
// Of each request it reads the user, the certificate's fingerprint, the time, the address, the verb and the resource. No
// other data leaves the log, and the log contains no request bodies. The log forwarder delivers the same log to customers
// (package logforwarder).
func followAuditLog(ctx context.Context, folder string, used func(hostedreport.CredentialUse), log *slog.Logger) {
	f := &auditReader{folder: folder, used: used}
	defer f.close()
	ticker := time.NewTicker(auditPollInterval)
	defer ticker.Stop()
	failing := false
	for {
		last := ctx.Err() != nil
		err := f.readNew()
		if err != nil && !failing {
			log.Warn("reading the audit log of a hosted API server failed; retrying", logkey.Path, folder, logkey.Error, err)
		}
		failing = err != nil
		if last {
			return
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// auditReader is a position in a log.
type auditReader struct {
	folder string
	used   func(hostedreport.CredentialUse)

	file *os.File // nil before the first read
	// partial is the beginning of a line that is not complete yet. skip is true if the line is too long.
	partial []byte
	skip    bool
}

func (f *auditReader) close() {
	if f.file != nil {
		_ = f.file.Close()
	}
}

// readNew reads the new lines.
func (f *auditReader) readNew() error {
	path := filepath.Join(f.folder, auditLogName)
	if f.file == nil {
		if err := f.readBackups(); err != nil {
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
	// Checked before the file is read: a file that was replaced by then is complete.
	current, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checking for the audit log: %w", err)
	}
	own, err := f.file.Stat()
	if err != nil {
		return fmt.Errorf("checking the audit log: %w", err)
	}
	if err := f.read(f.file); err != nil {
		return err
	}
	if current == nil || os.SameFile(current, own) {
		return nil
	}
	// The log was rotated, possibly more than once. Read all files again, so that none is missed.
	f.close()
	f.file, f.partial, f.skip = nil, nil, false
	return f.readNew()
}

// readBackups reads the older files. Their names contain the time of their rotation.
func (f *auditReader) readBackups() error {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return fmt.Errorf("listing audit logs: %w", err)
	}
	base, extension, _ := strings.Cut(auditLogName, ".")
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
			continue // removed by the API server, which keeps auditLogBackups files
		}
		if err != nil {
			return fmt.Errorf("opening an audit log: %w", err)
		}
		err = f.read(file)
		_ = file.Close()
		f.partial, f.skip = nil, false
		if err != nil {
			return err
		}
	}
	return nil
}

// read consumes all complete lines up to the end of a file.
func (f *auditReader) read(file *os.File) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := file.Read(buffer)
		f.consume(buffer[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
	}
}

func (f *auditReader) consume(text []byte) {
	for {
		line, after, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			f.appendToLine(text)
			return
		}
		f.appendToLine(line)
		if !f.skip {
			if use, ok := parseAuditEvent(f.partial); ok {
				f.used(use)
			}
		}
		f.partial, f.skip = f.partial[:0], false
		text = after
	}
}

// appendToLine appends to the current line.
func (f *auditReader) appendToLine(part []byte) {
	if f.skip || len(f.partial)+len(part) > maxLineBytes {
		f.partial, f.skip = f.partial[:0], true
		return
	}
	f.partial = append(f.partial, part...)
}
