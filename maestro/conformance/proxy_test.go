package conformance

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy is a TCP proxy in front of PostgreSQL. While it is closed it has no connections and rejects new ones.
type proxy struct {
	t      testing.TB
	url    string
	target string
	at     string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	running  sync.WaitGroup
}

func newProxy(t testing.TB, database string) *proxy {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, target: u.Host, at: "127.0.0.1:0", conns: map[net.Conn]struct{}{}}
	p.open()
	u.Host = p.at
	p.url = u.String()
	t.Cleanup(p.close)
	return p
}

func (p *proxy) open() {
	p.t.Helper()
	listener, err := net.Listen("tcp", p.at)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener, p.at = listener, listener.Addr().String()
	p.mu.Unlock()
	p.running.Add(1)
	go func() {
		defer p.running.Done()
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				p.mu.Lock()
				p.conns[pair[0]] = struct{}{}
				p.mu.Unlock()
				p.running.Add(1)
				go func() {
					defer p.running.Done()
					_, _ = io.Copy(pair[0], pair[1])
					_ = in.Close()
					_ = out.Close()
				}()
			}
		}
	}()
}

func (p *proxy) close() {
	p.mu.Lock()
	_ = p.listener.Close()
	for conn := range p.conns {
		_ = conn.Close()
		delete(p.conns, conn)
	}
	p.mu.Unlock()
	p.running.Wait()
}
