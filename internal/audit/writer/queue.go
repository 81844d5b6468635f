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
	"github.com/hcpmesh/hcpmesh/internal/disk"
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

// queue is the part of a chain that is on the disk: all lines that are not exported, those from the first action on that has begun and not
// ended, and at least the last line, so that the chain continues after a restart. Lines are written first, and durable after a sync.
// One goroutine writes; others may read durable lines and release segments at the same time.
type queue struct {
	dir    string
	writer string
	// segmentSize is the size after which a new segment begins.
	segmentSize int64
	lock        *os.File

	// file is the last segment, tail its size and written the position after its last line. The goroutine that writes owns them.
	file    *os.File
	tail    int64
	written audit.Position
	// broken is true if the file has bytes after tail, which a failed write or sync left.
	broken bool

	mu sync.Mutex
	// segments are in the order of their offsets. Their sizes are those of the durable lines. The last one grows.
	segments []segment
	// end is the position after the last durable line.
	end audit.Position
	// open are the durable records of actions without a durable outcome, by their sequence number.
	open map[uint64]opened
}

// opened is the record of an action that has begun.
type opened struct {
	// offset is the place of its line in the chain.
	offset int64
	// encoded is the record, if it was read from the disk.
	encoded []byte
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
	q := &queue{dir: dir, segmentSize: segmentSize, open: map[uint64]opened{}}
	if err := q.acquire(); err != nil {
		return nil, err
	}
	err := q.readName(service)
	if err == nil {
		// A queue without a name gets no segments: it would count as damaged.
		err = q.recover()
	}
	if err != nil {
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
		return disk.Replace(path, []byte(q.writer+"\n"), 0o600)
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
	// A process that was killed leaves lines in the memory of the file system. They are durable after this, as the next line states.
	for _, s := range segments {
		if err := disk.Sync(s.path); err != nil {
			return fmt.Errorf("opening the audit queue: %w", err)
		}
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
	last := q.segments[len(q.segments)-1]
	if q.file, err = os.OpenFile(last.path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return fmt.Errorf("opening the audit queue: %w", err)
	}
	q.tail, q.written = last.size, q.end
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

// write writes lines behind the last one. The position is the one after them. They are durable after sync and confirm. When it returns an
// error, none of the lines is part of the queue. A full segment must be durable before.
func (q *queue) write(lines []byte, after audit.Position) error {
	if err := q.repair(); err != nil {
		return err
	}
	if q.full() {
		if err := q.begin(); err != nil {
			return err
		}
	}
	if _, err := q.file.Write(lines); err != nil {
		q.broken = true
		return errors.Join(err, q.repair())
	}
	q.tail += int64(len(lines))
	q.written = after
	return nil
}

// full reports whether the next write begins a new segment.
func (q *queue) full() bool { return q.tail >= q.segmentSize }

// confirm makes the lines before a position durable lines, after a successful sync.
func (q *queue) confirm(end audit.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segments[len(q.segments)-1].size += end.Offset - q.end.Offset
	q.end = end
}

// discard removes the lines that are not durable from the queue, after a failed sync.
func (q *queue) discard() error {
	q.mu.Lock()
	q.tail, q.written = q.segments[len(q.segments)-1].size, q.end
	q.mu.Unlock()
	q.broken = true
	return q.repair()
}

// repair removes the bytes after the last line, if there may be any.
func (q *queue) repair() error {
	if !q.broken {
		return nil
	}
	if err := errors.Join(q.file.Truncate(q.tail), q.file.Sync()); err != nil {
		return fmt.Errorf("removing an incomplete line from the audit queue: %w", err)
	}
	q.broken = false
	return nil
}

// begin creates a new last segment. All lines must be durable.
func (q *queue) begin() error {
	offset := q.position().Offset
	path := filepath.Join(q.dir, fmt.Sprintf("%020d%s", offset, segmentSuffix))
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("creating a segment of the audit queue: %w", err)
	}
	if err := disk.Sync(q.dir); err != nil {
		return errors.Join(fmt.Errorf("creating a segment of the audit queue: %w", err), file.Close(), os.Remove(path))
	}
	if q.file != nil {
		_ = q.file.Close() // it is synced
	}
	q.file, q.tail = file, 0
	q.mu.Lock()
	defer q.mu.Unlock()
	q.segments = append(q.segments, segment{offset: offset, path: path})
	return nil
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

// size returns the number of durable bytes on the disk.
func (q *queue) size() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.end.Offset - q.segments[0].offset
}

// writtenSize returns the number of bytes on the disk with those that are not durable. Only the goroutine that writes may call it.
func (q *queue) writtenSize() int64 { return q.written.Offset - q.begins() }

// actionBegan keeps the segments from a durable record on until actionEnded.
func (q *queue) actionBegan(sequence uint64, offset int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open[sequence] = opened{offset: offset}
}

// actionEnded no longer keeps the segments for the action that began with a record.
func (q *queue) actionEnded(sequence uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, sequence)
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

// release deletes the segments whose bytes are all before an offset, except the last segment with a line, and those from the first action
// on that has not ended.
func (q *queue) release(exported int64) error {
	for {
		q.mu.Lock()
		for _, o := range q.open {
			exported = min(exported, o.offset)
		}
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
