// Package rotatedlog reads a log that a program rotates by renaming: NAME.EXT is the current file, and NAME-TIME.EXT are the older ones,
// whose names sort by age. The audit log of a Kubernetes API server is such a log.
//
// A Reader returns complete lines in their order, across rotations. It keeps the file that it reads open, so that it reads a file to its
// end also after the program has removed it. When files were removed that the reader has not read, Next returns ErrRemoved once.
// The caller stores the Position after it has processed a line, and continues there after a restart.
package rotatedlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var (
	// ErrRemoved is returned once for a place where lines may be missing: a file was removed, or changed, before it was known to be read to
	// its end. The next call continues with the oldest file.
	ErrRemoved = errors.New("files of the log were removed before they were read")
	// ErrTooLong is returned, with the beginning of the line, for a line that is longer than the limit. The position is after the line.
	ErrTooLong = errors.New("a line of the log is too long")
)

// Reader reads a log. It is not safe for concurrent use.
type Reader struct {
	dir, name string
	maxLine   int
	at        Position

	file  *os.File // nil before the first line
	lines *bufio.Reader
	// pending is the beginning of an incomplete line, and pendingSize its size in the file.
	pending     []byte
	pendingSize int64
	// last and ended are set by Finish, and when the reader then lost its file.
	last, ended bool
}

// New returns a reader of the log with a name in a folder. The reader continues at a position. Lines have at most maxLine bytes with their
// newline.
func New(dir, name string, maxLine int, at Position) *Reader {
	return &Reader{dir: dir, name: name, maxLine: maxLine, at: at}
}

// Position returns the position after the last line that Next returned.
func (r *Reader) Position() Position { return r.at }

// Finish makes the reader end with the files that the folder has beside its own. A folder that was replaced by one of the same name is another
// log. Call it when the program has ended permanently.
func (r *Reader) Finish() { r.last = true }

// Close closes the file. Next opens it again at the position.
func (r *Reader) Close() {
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file, r.lines = nil, nil
	r.resetLine()
}

// Seek continues at a position that Position returned. It keeps the file open if the position is in it.
func (r *Reader) Seek(at Position) error {
	if r.file == nil || at.Inode != r.at.Inode {
		r.Close()
		r.at = at
		return nil
	}
	r.at = at
	r.resetLine()
	if _, err := r.file.Seek(at.Offset, io.SeekStart); err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	r.lines.Reset(r.file)
	return nil
}

func (r *Reader) resetLine() { r.pending, r.pendingSize = nil, 0 }

// logFile is a file of the log.
type logFile struct {
	path  string
	inode uint64
}

// files returns the files of the log, the oldest first.
func (r *Reader) files() ([]logFile, error) {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing a log: %w", err)
	}
	extension := filepath.Ext(r.name)
	base := strings.TrimSuffix(r.name, extension)
	var names []string
	current := false
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == r.name:
			current = true
		case strings.HasPrefix(name, base+"-") && strings.HasSuffix(name, extension):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if current {
		names = append(names, r.name)
	}
	var files []logFile
	for _, name := range names {
		path := filepath.Join(r.dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed or renamed meanwhile, which is a change that wakes the reader's owner
		}
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", path) // never opened: a pipe would block, and a folder stay open after its removal
		}
		if err != nil {
			return nil, fmt.Errorf("listing a log: %w", err)
		}
		files = append(files, logFile{path, inodeOf(info)})
	}
	return files, nil
}

// Next returns the next complete line without its newline. It returns io.EOF if there is no complete line at present, ErrRemoved and
// ErrTooLong. The last line of a file that will not grow may lack its newline.
func (r *Reader) Next() ([]byte, error) {
	for {
		if r.file == nil {
			if err := r.open(); err != nil {
				return nil, err
			}
		}
		line, err := r.line()
		if !errors.Is(err, io.EOF) {
			return line, err
		}
		// The file may have grown, with all that it will ever have, before it was renamed. So the successor is looked for first.
		successor, err := r.hasSuccessor()
		if err != nil {
			return nil, err
		}
		if line, err := r.line(); !errors.Is(err, io.EOF) {
			return line, err
		}
		if !successor.found {
			return nil, io.EOF
		}
		if r.pendingSize > 0 {
			// The program was killed, or its disk was full, in the middle of a line.
			return r.take()
		}
		r.Close()
		r.at = Position{Inode: successor.inode}
		if successor.gap {
			return nil, ErrRemoved
		}
	}
}

// open opens the file of the position.
func (r *Reader) open() error {
	files, err := r.files()
	if err != nil {
		return err
	}
	if len(files) == 0 || r.ended || r.last && r.at.Inode == 0 {
		return io.EOF
	}
	i := 0
	if r.at.Inode != 0 {
		i = slices.IndexFunc(files, func(f logFile) bool { return f.inode == r.at.Inode })
	}
	if i < 0 {
		r.at, r.ended = Position{}, r.last
		return ErrRemoved
	}
	file, err := os.Open(files[i].path)
	if errors.Is(err, fs.ErrNotExist) {
		return io.EOF
	}
	if err != nil {
		return fmt.Errorf("opening a log: %w", err)
	}
	info, err := file.Stat()
	if err != nil || inodeOf(info) != files[i].inode {
		_ = file.Close()
		if err == nil {
			err = io.EOF // it was renamed meanwhile
		}
		return err
	}
	head, err := headOf(file, r.at.Offset)
	if err == nil && r.at.Offset > 0 && (info.Size() < r.at.Offset || head != r.at.Head) {
		// The file of the position was removed and its inode belongs to another file, or the file was changed.
		_ = file.Close()
		r.at = Position{}
		return ErrRemoved
	}
	if err == nil {
		_, err = file.Seek(r.at.Offset, io.SeekStart)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("reading a log: %w", err)
	}
	r.at.Inode = files[i].inode
	r.file, r.lines = file, bufio.NewReaderSize(file, 64<<10)
	r.resetLine()
	return nil
}

// next describes the file after the open one.
type next struct {
	found bool
	inode uint64
	// gap reports whether a file between the two may be missing.
	gap bool
}

// hasSuccessor returns the file after the open one, if there is one: then the open file is complete.
func (r *Reader) hasSuccessor() (next, error) {
	files, err := r.files()
	if err != nil || len(files) == 0 {
		return next{}, err
	}
	i := slices.IndexFunc(files, func(f logFile) bool { return f.inode == r.at.Inode })
	if i < 0 && r.last {
		return next{}, nil
	}
	if i < 0 {
		return next{true, files[0].inode, true}, nil
	}
	if i+1 < len(files) {
		return next{found: true, inode: files[i+1].inode}, nil
	}
	return next{}, nil
}

// line returns the next complete line of the open file, and io.EOF if the rest is not a complete line yet.
func (r *Reader) line() ([]byte, error) {
	for {
		part, err := r.lines.ReadSlice('\n')
		r.pendingSize += int64(len(part))
		if r.pendingSize <= int64(r.maxLine) {
			r.pending = append(r.pending, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case err != nil:
			return nil, fmt.Errorf("reading a log: %w", err)
		}
		return r.take()
	}
}

// take returns the pending line and moves the position behind it.
func (r *Reader) take() (line []byte, err error) {
	line, size, begin := r.pending, r.pendingSize, r.at.Offset
	r.resetLine()
	r.at.Offset += size
	if begin < headSize {
		if r.at.Head, err = headOf(r.file, r.at.Offset); err != nil {
			return nil, fmt.Errorf("reading a log: %w", err)
		}
	}
	if size > int64(r.maxLine) {
		return line, ErrTooLong
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}
