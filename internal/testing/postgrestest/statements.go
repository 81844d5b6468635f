package postgrestest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/url"
	"sync"
	"testing"
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Statements{counts: map[string]int{}}
	var running sync.WaitGroup
	target := u.Host
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.forward(client, target) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	u.Host = listener.Addr().String()
	return s, u.String()
}

// Reset returns the number of executions of each statement since the last call, by its text.
func (s *Statements) Reset() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := maps.Clone(s.counts)
	clear(s.counts)
	return counts
}

// forward forwards a connection until one end closes it.
func (s *Statements) forward(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	var responses sync.WaitGroup
	responses.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	defer responses.Wait()
	defer server.Close()
	requests := bufio.NewReader(io.TeeReader(client, server))
	prepared, bound := map[string]string{}, map[string]string{}
	for first := true; ; first = false {
		kind := byte(0)
		if !first { // the startup message has no type
			if kind, err = requests.ReadByte(); err != nil {
				return
			}
		}
		var size uint32
		if err := binary.Read(requests, binary.BigEndian, &size); err != nil {
			return
		}
		message := make([]byte, size-4)
		if _, err := io.ReadFull(requests, message); err != nil {
			return
		}
		name, rest, _ := bytes.Cut(message, []byte{0})
		text, _, _ := bytes.Cut(rest, []byte{0})
		switch kind {
		case 'P': // Parse: a name and a statement
			prepared[string(name)] = string(text)
		case 'B': // Bind: a portal and the name of a statement
			bound[string(name)] = prepared[string(text)]
		case 'E': // Execute: a portal
			s.count(bound[string(name)])
		case 'Q': // Query: a statement
			s.count(string(name))
		}
	}
}

func (s *Statements) count(statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[statement]++
}
