package crashsweep

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// postgresMessage encodes a message. The first message of a connection has the type 0.
func postgresMessage(kind byte, content string) []byte {
	var message []byte
	if kind != 0 {
		message = append(message, kind)
	}
	return append(binary.BigEndian.AppendUint32(message, uint32(len(content)+4)), content...)
}

// startFakePostgres starts a server that accepts all simple queries. queries returns those of its only connection, after
// that is closed.
func startFakePostgres(t *testing.T) (address string, queries func() []string) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var received []string
	var group sync.WaitGroup
	group.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		transaction := "I"
		for message, err := readPostgresMessage(conn, false); err == nil; message, err = readPostgresMessage(conn, true) {
			if message[0] == 'Q' {
				query := strings.TrimSuffix(string(message[5:]), "\x00")
				received = append(received, query)
				switch query {
				case "begin":
					transaction = "T"
				case "commit":
					transaction = "I"
				}
			}
			_, _ = conn.Write(append(postgresMessage('C', "DONE\x00"), postgresMessage('Z', transaction)...))
		}
	})
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String(), func() []string { group.Wait(); return received }
}

func TestPostgresProxyInterceptsCommits(t *testing.T) {
	script := []string{"select 1 for update", "begin", "insert into things values (1)", "update things set n = 2", "commit", "delete from things"}
	points := []string{
		"before the commit of insert into things, update things", "after the commit of insert into things, update things",
		"before the commit of delete from things", "after the commit of delete from things",
	}
	for name, c := range map[string]struct {
		crashAt             []int
		responses, received int
	}{
		"NoCrash":      {nil, 6, 6},
		"BeforeCommit": {[]int{1}, 4, 4},
		"AfterCommit":  {[]int{2}, 4, 5},
		"BeforeSingle": {[]int{3}, 5, 5},
		"AfterSingle":  {[]int{4}, 5, 6},
	} {
		t.Run(name, func(t *testing.T) {
			server, queries := startFakePostgres(t)
			injector := newInjector(1, c.crashAt...)
			proxy := PostgresProxy(t, "postgres://user@"+server+"/database", injector)
			conn := must.Get(net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(proxy, "postgres://user@"), "/database")))(t)
			exchange := func(message []byte) error {
				if _, err := conn.Write(message); err != nil {
					return err
				}
				for {
					response, err := readPostgresMessage(conn, true)
					if err != nil || response[0] == 'Z' {
						return err
					}
				}
			}
			must.Do(t, exchange(postgresMessage(0, "startup")))
			responses := 0
			for _, query := range script {
				if exchange(postgresMessage('Q', query+"\x00")) != nil {
					break
				}
				responses++
			}
			_ = conn.Close()
			if got := queries(); responses != c.responses || !slices.Equal(got, script[:c.received]) {
				t.Errorf("the client got %d responses, want %d; the server received %q, want %d queries", responses, c.responses, got, c.received)
			}
			passed := points
			if len(c.crashAt) > 0 {
				passed = points[:c.crashAt[0]]
			}
			if got := injector.Passed(); !slices.Equal(got, passed) {
				t.Errorf("points %q, want %q", got, passed)
			}
		})
	}
}
