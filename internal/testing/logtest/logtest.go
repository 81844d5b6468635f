// Package logtest collects the log of a test.
package logtest

import (
	"strings"
	"sync"
)

// Log is a log with concurrent writers. Its zero value is empty.
type Log struct {
	mu      sync.Mutex
	content strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.Write(line)
}

// String returns what was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}
