package postgrestest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// Statements counts the statements that clients execute. Its methods are safe for concurrent use.
type Statements struct {
	mu     sync.Mutex
	counts map[string]int
}

// CountStatements returns a URL of a database whose clients' statements are counted. The clients must not use TLS. It is a proxy, so that the
// clients need no hook for tests. It stops with the test.
func CountStatements(t testing.TB, databaseURL string) (*Statements, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	s := &Statements{counts: map[string]int{}}
	u.Host = netfault.StartObservedProxy(t, u.Host, func() io.Writer {
		return &messages{statements: s, header: startupHeader, prepared: map[string]string{}, bound: map[string]string{}}
	}).Address
	return s, u.String()
}

// Reset forgets all executions.
func (s *Statements) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.counts)
}

// ExpectAtMost fails if more statements were executed since the last Reset. It does not count those that begin with one of the texts.
func (s *Statements) ExpectAtMost(t testing.TB, most int, except ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	var lines []string
	for _, statement := range slices.Sorted(maps.Keys(s.counts)) {
		if slices.ContainsFunc(except, func(begin string) bool { return strings.HasPrefix(statement, begin) }) {
			continue
		}
		sum += s.counts[statement]
		lines = append(lines, fmt.Sprintf("%3d %.120s", s.counts[statement], strings.Join(strings.Fields(statement), " ")))
	}
	t.Logf("%d statements were executed", sum)
	if sum > most {
		t.Errorf("want at most %d statements:\n%s", most, strings.Join(lines, "\n"))
	}
}

func (s *Statements) count(statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[statement]++
}

// A message has its length, which includes that of the length itself. Messages but the first of a connection have their type before it.
const startupHeader, header = 4, 5

// messages reads the messages of a client.
type messages struct {
	statements      *Statements
	header          int
	prepared, bound map[string]string
	// rest is the begin of a message.
	rest []byte
}

// Write implements io.Writer.
func (m *messages) Write(data []byte) (int, error) {
	m.rest = append(m.rest, data...)
	for len(m.rest) >= m.header {
		end := m.header - 4 + int(binary.BigEndian.Uint32(m.rest[m.header-4:]))
		if len(m.rest) < end {
			break
		}
		if m.header == header {
			m.read(m.rest[0], m.rest[header:end])
		}
		m.rest, m.header = m.rest[end:], header
	}
	return len(data), nil
}

func (m *messages) read(kind byte, content []byte) {
	name, rest, _ := bytes.Cut(content, []byte{0})
	text, _, _ := bytes.Cut(rest, []byte{0})
	switch kind {
	case 'P': // Parse: a name and a statement
		m.prepared[string(name)] = string(text)
	case 'B': // Bind: a portal and the name of a statement
		m.bound[string(name)] = m.prepared[string(text)]
	case 'E': // Execute: a portal
		m.statements.count(m.bound[string(name)])
	case 'Q': // Query: a statement
		m.statements.count(string(name))
	}
}
