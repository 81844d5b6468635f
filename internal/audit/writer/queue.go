package writer

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// The files of a queue's folder besides its segments.
const (
	// nameFile has the name of the writer.
	nameFile = "writer"
	// lockFile is locked while a process has the queue.
	lockFile = "lock"
	// segmentSuffix is the suffix of segments. Their names are the offset of their first byte in the chain.
	segmentSuffix = ".queue"
)

// ErrDamaged is the error for a queue that has a broken chain before its end. An interrupted write can only break the end.
var ErrDamaged = errors.New("the audit queue is damaged")

// queue is the part of a chain that is on the disk: all lines that are not exported, and at least the last line, so that the chain
// continues after a restart. One goroutine appends; others may read and release at the same time.
type queue struct {
	dir    string
	writer string
	// segmentSize is the size after which a new segment begins.
	segmentSize int64
	lock        *os.File

	// file is the last segment. Only the goroutine that appends uses it.
	file *os.File
	// broken is true if the last write failed and its remains were not removed yet.
	broken bool

	mu sync.Mutex
	// segments are in the order of their offsets. The last one grows.
	segments []segment
	// end is the position after the last durable line.
	end audit.Position
}

type segment struct {
	offset, size int64
	path         string
}

// openQueue opens or creates the queue in a folder. It removes the remains of an interrupted write.
func openQueue(dir, service string, segmentSize int64) (*queue, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the audit queue: %w", err)
	}
	q := &queue{dir: dir, segmentSize: segmentSize}
	if err := q.acquire(); err != nil {
		return nil, err
	}
	if err := errors.Join(q.readName(service), q.recover()); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

// acquire makes sure that no other process has the queue.
func (q *queue) acquire() error {
	file, err := os.OpenFile(filepath.Join(q.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening the audit queue: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return fmt.Errorf("opening the audit queue: another process uses %s: %w", q.dir, err)
	}
	q.lock = file
	return nil
}

// readName reads the name of the writer, and creates it in a new queue.
func (q *queue) readName(service string) error {
	path := filepath.Join(q.dir, nameFile)
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		segments, err := filepath.Glob(filepath.Join(q.dir, "*"+segmentSuffix))
		if err != nil || len(segments) > 0 {
			return fmt.Errorf("%w: %s has segments and no file %s", ErrDamaged, q.dir, nameFile)
		}
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		if q.writer, err = audit.NewWriterName(service, random); err != nil {
			return err
		}
		return replaceFile(path, []byte(q.writer+"\n"))
	case err != nil:
		return fmt.Errorf("opening the audit queue: %w", err)
	}
	q.writer = strings.TrimSuffix(string(content), "\n")
	if !audit.ValidWriter(q.writer) || audit.Service(q.writer) != service {
		return fmt.Errorf("%w: %s has no name of a writer of %s", ErrDamaged, path, service)
	}
	return nil
}

// recover reads all segments and opens the last one.
func (q *queue) recover() error {
	segments, err := findSegments(q.dir)
	if err != nil {
		return err
	}
	if len(segments) == 0 {
		return q.begin()
	}
	q.end = audit.Position{Offset: segments[0].offset}
	for i := range segments {
		if err := q.recoverSegment(&segments[i], i == 0, i == len(segments)-1); err != nil {
			return err
		}
	}
	q.segments = segments
	// A crash can leave a new segment without a line.
	if last := &q.segments[len(q.segments)-1]; last.size == 0 && len(q.segments) > 1 {
		if err := os.Remove(last.path); err != nil {
			return err
		}
		q.segments = q.segments[:len(q.segments)-1]
	}
	if q.file, err = os.OpenFile(q.segments[len(q.segments)-1].path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return fmt.Errorf("opening the audit queue: %w", err)
	}
	return nil
}

// findSegments returns the segments of a folder in their order. Each one must begin where the one before it ends.
func findSegments(dir string) ([]segment, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil {
		return nil, err
	}
	var segments []segment
	for _, path := range paths {
		offset, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(path), segmentSuffix), 10, 64)
		if err != nil || offset < 0 {
			return nil, fmt.Errorf("%w: %s is not the name of a segment", ErrDamaged, path)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		segments = append(segments, segment{offset, info.Size(), path})
	}
	slices.SortFunc(segments, func(a, b segment) int { return int(min(max(a.offset-b.offset, -1), 1)) })
	for i := 1; i < len(segments); i++ {
		if before := segments[i-1]; before.offset+before.size != segments[i].offset {
			return nil, fmt.Errorf("%w: %s ends at byte %d of the chain, the next segment begins at %d", ErrDamaged, before.path, before.offset+before.size, segments[i].offset)
		}
	}
	return segments, nil
}

// recoverSegment checks the lines of a segment and moves end behind them. The line before the first segment is not known. It cuts
// the last segment after its last line.
func (q *queue) recoverSegment(s *segment, first, last bool) error {
	content, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("opening the audit queue: %w", err)
	}
	rest := content
	for len(rest) > 0 {
		text, after, complete := bytes.Cut(rest, []byte("\n"))
		line, err := audit.ParseLine(text)
		good := complete && err == nil && line.Writer == q.writer
		good = good && (line.Follows(q.end) || first && len(rest) == len(content) && s.offset > 0)
		if !good {
			break
		}
		q.end = line.At(q.end.Offset, len(text)+1)
		rest = after
	}
	if len(rest) == 0 {
		return nil
	}
	if !last || hasLine(rest) {
		return fmt.Errorf("%w: %s has a changed line after line %d of the chain of %s", ErrDamaged, s.path, q.end.Sequence, q.writer)
	}
	s.size -= int64(len(rest))
	return truncate(s.path, s.size)
}

// hasLine reports whether text has a complete line of a chain after its first newline, or at its beginning.
func hasLine(text []byte) bool {
	for len(text) > 0 {
		line, after, complete := bytes.Cut(text, []byte("\n"))
		if _, err := audit.ParseLine(line); err == nil && complete {
			return true
		}
		text = after
	}
	return false
}

func truncate(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("removing an incomplete line from the audit queue: %w", err)
	}
	if err := errors.Join(file.Truncate(size), file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("removing an incomplete line from the audit queue: %w", err)
	}
	return nil
}

// append writes lines to the disk. The position is the one after them. When it returns an error, none of the lines is part of the
// queue.
func (q *queue) append(lines []byte, after audit.Position) error {
	if err := q.repair(); err != nil {
		return err
	}
	if last := q.last(); last.size >= q.segmentSize {
		if err := q.begin(); err != nil {
			return err
		}
	}
	q.broken = true
	if _, err := q.file.Write(lines); err != nil {
		return errors.Join(err, q.repair())
	}
	if err := q.file.Sync(); err != nil {
		return errors.Join(err, q.repair())
	}
	q.broken = false
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segments[len(q.segments)-1].size += int64(len(lines))
	q.end = after
	return nil
}

// repair removes the remains of a failed write, if there are any.
func (q *queue) repair() error {
	if !q.broken {
		return nil
	}
	if err := errors.Join(q.file.Truncate(q.last().size), q.file.Sync()); err != nil {
		return fmt.Errorf("removing an incomplete line from the audit queue: %w", err)
	}
	q.broken = false
	return nil
}

// begin creates a new last segment.
func (q *queue) begin() error {
	offset := q.position().Offset
	path := filepath.Join(q.dir, fmt.Sprintf("%020d%s", offset, segmentSuffix))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("creating a segment of the audit queue: %w", err)
	}
	if err := syncDir(q.dir); err != nil {
		return errors.Join(fmt.Errorf("creating a segment of the audit queue: %w", err), file.Close(), os.Remove(path))
	}
	if q.file != nil {
		_ = q.file.Close() // it is synced
	}
	q.file = file
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segments = append(q.segments, segment{offset: offset, path: path})
	return nil
}

func (q *queue) last() segment {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.segments[len(q.segments)-1]
}

// position returns the position after the last durable line.
func (q *queue) position() audit.Position {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.end
}

// begins returns the offset of the first byte in the queue.
func (q *queue) begins() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.segments[0].offset
}

// size returns the number of bytes on the disk.
func (q *queue) size() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.end.Offset - q.segments[0].offset
}

// read returns durable bytes from an offset, at most limit. It ends after a line unless one line is longer than limit.
func (q *queue) read(offset int64, limit int) ([]byte, error) {
	q.mu.Lock()
	var from segment
	for _, s := range q.segments {
		if s.offset <= offset {
			from = s
		}
	}
	available := from.offset + from.size - offset
	q.mu.Unlock()
	if from.path == "" {
		return nil, fmt.Errorf("%w: byte %d of the chain is not in the queue", ErrDamaged, offset)
	}
	if available <= 0 {
		return nil, nil
	}
	file, err := os.Open(from.path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit queue: %w", err)
	}
	defer file.Close()
	content := make([]byte, min(available, int64(limit)))
	if _, err := file.ReadAt(content, offset-from.offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading the audit queue: %w", err)
	}
	if end := bytes.LastIndexByte(content, '\n'); end >= 0 {
		content = content[:end+1]
	}
	return content, nil
}

// release deletes the segments whose bytes are all before an offset, except the last segment with a line.
func (q *queue) release(exported int64) error {
	for {
		q.mu.Lock()
		if len(q.segments) < 2 || q.segments[1].offset > exported || q.segments[1].size == 0 {
			q.mu.Unlock()
			return nil
		}
		path := q.segments[0].path
		q.mu.Unlock()
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("deleting an exported segment of the audit queue: %w", err)
		}
		q.mu.Lock()
		q.segments = slices.Delete(q.segments, 0, 1)
		q.mu.Unlock()
	}
}

func (q *queue) close() error {
	var errs []error
	if q.file != nil {
		errs = append(errs, q.file.Close())
	}
	return errors.Join(append(errs, q.lock.Close())...)
}

// replaceFile writes a file durably, in one step.
func replaceFile(path string, content []byte) error {
	part, err := os.CreateTemp(filepath.Dir(path), ".part-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(content)
	if err := errors.Join(err, part.Sync(), part.Close(), os.Rename(part.Name(), path)); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
