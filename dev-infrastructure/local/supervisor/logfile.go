package supervisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxLogSize bounds a log file in bytes. When it is larger, its content is moved to NAME.log.1.
const maxLogSize = 16 << 20

// logFile is the file to which a process itself writes, with O_APPEND, so that its output does not depend on the
// supervisor.
type logFile struct {
	path string
	file *os.File
}

func openLog(dir, name string) (*logFile, error) {
	path := filepath.Join(dir, name+".log")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	return &logFile{path: path, file: file}, nil
}

// bound moves the content to the older file if it is larger than maxLogSize. Lines that are written at the same time
// may be lost.
func (l *logFile) bound() error {
	info, err := l.file.Stat()
	if err != nil || info.Size() <= maxLogSize {
		return err
	}
	older, err := os.OpenFile(l.path+".1", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(older, io.NewSectionReader(l.file, 0, info.Size()))
	if closeErr := older.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return l.file.Truncate(0)
}

// size returns the size of the file in bytes.
func (l *logFile) size() int64 {
	info, err := l.file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// logWindow is the number of bytes at the end of a log that are searched for the reason why a process terminated.
const logWindow = 4096

// text returns the end of what was written at or after from.
func (l *logFile) text(from int64) string {
	size := l.size()
	start := max(from, size-logWindow)
	if start >= size {
		return ""
	}
	data := make([]byte, size-start)
	n, _ := l.file.ReadAt(data, start)
	return string(data[:n])
}

// tail returns the last non-empty line that was written at or after from, shortened, for messages. If a Go program panicked, it
// returns the line with the reason, which comes before the stacks.
func (l *logFile) tail(from int64) string {
	lines := strings.Split(strings.TrimSpace(l.text(from)), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	for _, candidate := range lines {
		if strings.HasPrefix(candidate, "panic: ") || strings.HasPrefix(candidate, "fatal error: ") {
			line = strings.TrimSpace(candidate)
			break
		}
	}
	if len(line) > 400 {
		line = line[:400] + "…"
	}
	return line
}
