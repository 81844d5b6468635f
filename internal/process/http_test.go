package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// connect returns a connection that sends a text and then nothing.
func (p *pipes) connect(text string) net.Conn {
	client, _ := p.dial(context.Background(), "", "")
	go func() { _, _ = io.WriteString(client, text) }()
	return client
}

// serveHTTP calls a test in a synctest bubble with a server of some traffic.
func serveHTTP(t *testing.T, traffic Traffic, handler http.HandlerFunc, test func(t *testing.T, listener *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		listener, served := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}, make(chan error, 1)
		go func() {
			served <- ServeHTTP(ctx, NewHTTPServer(traffic, handler, slog.New(slog.DiscardHandler)), listener, time.Second)
		}()
		test(t, listener)
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

const (
	get  = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	slow = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx"
)

// TestServersCloseConnections checks when a server closes a connection whose client sends a text and then nothing.
func TestServersCloseConnections(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) {}
	read := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}
	refuse := func(w http.ResponseWriter, r *http.Request) {
		CloseUnread(w, r)
		w.WriteHeader(http.StatusUnauthorized)
	}
	const closing = 500 * time.Millisecond // net/http closes a connection that long after a response to a request that it has not read
	for _, tt := range []struct {
		name, sent string
		handler    http.HandlerFunc
		status     string // empty if there is no response
		after      time.Duration
	}{
		{"no request", "", ok, "", headerTimeout},
		{"slow header", "GET / HTTP/1.1\r\nHost:", ok, "", headerTimeout},
		{"large header", "GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", maxHeader+8<<10), ok, "431", closing},
		{"idle", get, ok, "200", idleTimeout},
		{"slow body that the handler reads", slow, read, "400", bodyTimeout},
		{"slow body that the handler does not read", slow, ok, "200", bodyTimeout},
		{"slow body of an unknown length", strings.Replace(slow, "Content-Length: 100000\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx", 1), ok, "200", bodyTimeout},
		{"slow body that is refused", slow, refuse, "401", lingerTimeout},
		{"large slow body that is refused", strings.Replace(slow, "100000", "1000000", 1), refuse, "401", closing},
	} {
		for traffic, name := range map[Traffic]string{Calls: "calls", Streams: "streams", Files: "files"} {
			t.Run(tt.name+" of "+name, func(t *testing.T) {
				serveHTTP(t, traffic, tt.handler, func(t *testing.T, listener *pipes) {
					began := time.Now()
					connection := listener.connect(tt.sent)
					response := must.Get(io.ReadAll(connection))(t)
					if took := time.Since(began); took != tt.after {
						t.Errorf("the server closed the connection after %s, want %s", took, tt.after)
					}
					if status, _, _ := strings.Cut(strings.TrimPrefix(string(response), "HTTP/1.1 "), " "); status != tt.status {
						t.Errorf("the response is %q, want the status %q", response, tt.status)
					}
				})
			})
		}
	}
}

// TestConnectionsAreLimited opens the maximum of connections, and more after one was closed and one was hijacked.
func TestConnectionsAreLimited(t *testing.T) {
	hijacked := make(chan net.Conn, 1)
	hijack := func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		hijacked <- connection
	}
	serveHTTP(t, Streams, hijack, func(t *testing.T, listener *pipes) {
		open := make([]net.Conn, maxConnections)
		for i := range open {
			open[i] = listener.connect("G")
		}
		refused := func() bool {
			connection := listener.connect("")
			defer func() { _ = connection.Close() }()
			synctest.Wait()
			_ = connection.SetReadDeadline(time.Now())
			_, err := connection.Read(make([]byte, 1))
			return errors.Is(err, io.EOF)
		}
		if synctest.Wait(); !refused() {
			t.Error("a connection beyond the maximum is open")
		}
		_ = open[0].Close()
		if synctest.Wait(); refused() {
			t.Error("a connection is refused after another one was closed")
		}
		_, _ = io.WriteString(open[1], strings.TrimPrefix(get, "G"))
		defer func() { _ = (<-hijacked).Close() }()
		synctest.Wait()
		open[0] = listener.connect("")
		if synctest.Wait(); refused() {
			t.Error("a connection is refused after another one was hijacked")
		}
		for _, connection := range open {
			_ = connection.Close()
		}
	})
}

// TestStreamsContinue checks that a stream lasts longer than the timeouts, and a call does not. It runs in a synctest bubble.
func TestStreamsContinue(t *testing.T) {
	for _, request := range []string{get, strings.NewReplacer("100000", "1").Replace(slow)} {
		for _, traffic := range []Traffic{Calls, Streams, Files} {
			handler := func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				time.Sleep(time.Hour)
				_, _ = fmt.Fprint(w, r.Context().Err() == nil)
			}
			serveHTTP(t, traffic, handler, func(t *testing.T, listener *pipes) {
				connection := listener.connect(request)
				defer func() { _ = connection.Close() }()
				response, err := http.ReadResponse(bufio.NewReader(connection), nil)
				if traffic == Calls {
					if err == nil {
						t.Errorf("a call ended after an hour with %s", response.Status)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if content, err := io.ReadAll(response.Body); err != nil || string(content) != "true" {
					t.Errorf("the context of a stream has ended: %s, %v", content, err)
				}
			})
		}
	}
}

// TestBodiesAreLimited sends a body that is too large. Only Files accept it.
func TestBodiesAreLimited(t *testing.T) {
	for traffic, accepted := range map[Traffic]bool{Calls: false, Streams: false, Files: true} {
		var failure error
		handler := func(_ http.ResponseWriter, r *http.Request) { _, failure = io.Copy(io.Discard, r.Body) }
		serveHTTP(t, traffic, handler, func(t *testing.T, listener *pipes) {
			connection := listener.connect(fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", maxBody+1, strings.Repeat("a", maxBody+1)))
			defer func() { _ = connection.Close() }()
			must.Get(http.ReadResponse(bufio.NewReader(connection), nil))(t)
		})
		if large := new(http.MaxBytesError); errors.As(failure, &large) == accepted {
			t.Errorf("traffic %d: reading the body returned %v", traffic, failure)
		}
	}
}
