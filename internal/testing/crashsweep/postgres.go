package crashsweep

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// PostgresProxy starts a proxy in front of a PostgreSQL server and returns the database URL that the process must use.
// The proxy intercepts commits: the points are before a commit is forwarded and before its response is returned. It
// closes the connections of a crashed process. Connections must not use TLS. The proxy stops when the test ends.
func PostgresProxy(t testing.TB, databaseURL string, points Points) string {
	t.Helper()
	database, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := database.Host
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { proxyPostgres(client, target, points) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); group.Wait() })
	database.Host = listener.Addr().String()
	return database.String()
}

// proxyPostgres serves one connection until either side closes it or the process crashes.
func proxyPostgres(client net.Conn, target string, points Points) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if points.Crashed() {
		return
	}
	s := &postgresSession{points: points, client: client, server: server, statements: map[string]string{}}
	closeBoth := func() { _ = client.Close(); _ = server.Close() }
	var group sync.WaitGroup
	group.Go(func() {
		defer closeBoth()
		s.forwardResponses()
	})
	s.forwardRequests()
	closeBoth()
	group.Wait()
}

// postgresSession is one connection. It parses only the messages that are needed to detect commits (PostgreSQL
// documentation, "Message Formats").
type postgresSession struct {
	points         Points
	client, server net.Conn
	statements     map[string]string // prepared statements by name

	mu            sync.Mutex
	inTransaction bool     // an explicit transaction block is open
	changes       []string // changes of the open transaction
	committing    string   // changes of the commit without a response; "" if there is none
}

var (
	// changePattern matches the parts of a statement that change something other sessions can see.
	changePattern = regexp.MustCompile(`(?i)\b(insert into [a-z_]+|delete from [a-z_]+|update [a-z_]+|create table|pg_notify)`)
	// lockPattern matches clauses that contain "update" but are not UPDATE statements.
	lockPattern = regexp.MustCompile(`(?i)\b(for (no key )?update|do update set)\b`)
)

// forwardRequests forwards the client's messages. It holds messages back until one arrives that lets the server respond,
// so that a crash before a commit forwards nothing of the commit.
func (s *postgresSession) forwardRequests() {
	pending, err := readPostgresMessage(s.client, false)
	if err != nil {
		return
	}
	if _, err := s.server.Write(pending); err != nil {
		return
	}
	pending = nil
	var executed []string
	for {
		message, err := readPostgresMessage(s.client, true)
		if err != nil {
			return
		}
		pending = append(pending, message...)
		field := func(n int) string { // the n-th zero-terminated string of the message
			return string(bytes.SplitN(message[5:], []byte{0}, n+2)[n])
		}
		switch message[0] {
		case 'P': // Parse: name, statement
			s.statements[field(0)] = field(1)
			continue
		case 'B': // Bind: portal, name
			executed = append(executed, s.statements[field(1)])
			continue
		case 'Q': // Query
			executed = append(executed, field(0))
		case 'S', 'H', 'p', 'X': // Sync, Flush, PasswordMessage, Terminate
		default:
			continue
		}
		if message[0] == 'Q' || message[0] == 'S' {
			if s.beforeExecution(executed) != nil {
				return
			}
			executed = nil
		}
		if _, err := s.server.Write(pending); err != nil {
			return
		}
		pending = nil
	}
}

// beforeExecution passes a point if the statements commit a change.
func (s *postgresSession) beforeExecution(statements []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.points.Crashed() {
		return ErrCrashed
	}
	var changes []string
	commit := false
	for _, statement := range statements {
		commit = commit || strings.EqualFold(strings.TrimSpace(statement), "commit")
		changes = append(changes, changePattern.FindAllString(lockPattern.ReplaceAllString(statement, ""), -1)...)
	}
	s.changes = append(s.changes, changes...)
	if s.inTransaction && !commit || len(s.changes) == 0 {
		return nil
	}
	s.committing, s.changes = strings.Join(slices.Compact(s.changes), ", "), nil
	return s.points.Point("before the commit of " + s.committing)
}

// forwardResponses forwards the server's messages. It holds back the response to a commit until its point has passed.
func (s *postgresSession) forwardResponses() {
	var pending []byte
	for {
		message, err := readPostgresMessage(s.server, true)
		if err != nil {
			return
		}
		s.mu.Lock()
		pending = append(pending, message...)
		if message[0] == 'Z' { // ReadyForQuery: the transaction status
			s.inTransaction = message[5] != 'I'
			if !s.inTransaction {
				s.changes = nil
			}
			if s.committing != "" {
				name := s.committing
				s.committing = ""
				err = s.points.Point("after the commit of " + name)
			}
		}
		forward := message[0] == 'Z' || s.committing == ""
		s.mu.Unlock()
		if err == nil && forward {
			_, err = s.client.Write(pending)
			pending = nil
		}
		if err != nil {
			return
		}
	}
}

// readPostgresMessage reads one message. The first message of a connection has no type byte.
func readPostgresMessage(from io.Reader, typed bool) ([]byte, error) {
	header := make([]byte, 4, 5)
	if typed {
		header = header[:5]
	}
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(header[len(header)-4:])) - 4
	if length < 0 || length > 64<<20 {
		return nil, errors.New("the message has an invalid length")
	}
	message := append(header, make([]byte, length)...)
	_, err := io.ReadFull(from, message[len(header):])
	return message, err
}
