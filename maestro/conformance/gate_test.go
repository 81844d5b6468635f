package conformance

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// gate stands between the server and PostgreSQL and can be shut: then it cuts every connection and refuses new ones.
type gate struct {
	t      testing.TB
	url    string
	target string
	at     string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	running  sync.WaitGroup
}

func newGate(t testing.TB, database string) *gate {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{t: t, target: u.Host, at: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
	g.open()
	u.Host = g.at
	g.url = u.String()
	t.Cleanup(g.close)
	return g
}

func (g *gate) open() {
	g.t.Helper()
	listener, err := net.Listen("tcp", g.at)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	g.listener, g.at = listener, listener.Addr().String()
	g.mu.Unlock()
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", g.target)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				g.mu.Lock()
				g.conns[pair[0]] = struct{}{}
				g.mu.Unlock()
				g.running.Add(1)
				go func() {
					defer g.running.Done()
					_, _ = io.Copy(pair[0], pair[1])
					_ = in.Close()
					_ = out.Close()
				}()
			}
		}
	}()
}

func (g *gate) close() {
	g.mu.Lock()
	_ = g.listener.Close()
	for conn := range g.conns {
		_ = conn.Close()
		delete(g.conns, conn)
	}
	g.mu.Unlock()
	g.running.Wait()
}
