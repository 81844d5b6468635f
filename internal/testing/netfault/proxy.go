// Package netfault has servers that tests cannot reach: a TCP proxy that interrupts the connections to a server that a test cannot stop, for example
// because it runs in the test's process or other tests use it, and addresses that refuse connections.
package netfault

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy forwards TCP connections to a server. Its methods are safe for concurrent use.
type Proxy struct {
	// Address is host:port for the clients. It does not change, and no other server gets it while the proxy disconnects clients.
	Address string

	target   string
	observe  func() io.Writer
	listener net.Listener
	running  sync.WaitGroup

	mu           sync.Mutex
	open         chan struct{} // closed while data is forwarded
	disconnected bool
	connections  map[net.Conn]bool
}

// StartProxy returns a proxy to the server at target, host:port. It stops with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return StartObservedProxy(t, target, func() io.Writer { return io.Discard })
}

// StartObservedProxy is StartProxy for a proxy that calls observe for each connection, and writes what the client sends to its result before it forwards it.
func StartObservedProxy(t testing.TB, target string, observe func() io.Writer) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: listener.Addr().String(), target: target, observe: observe, listener: listener, open: make(chan struct{}), connections: map[net.Conn]bool{}}
	close(p.open)
	p.running.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

// Hang stops forwarding data, in existing and in new connections: the kernel accepts connections and receives data, and nothing
// responds, as if the server had been stopped with SIGSTOP.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

// Disconnect closes all connections, and each new one immediately, as if the server did not run.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnected = true
	for connection := range p.connections {
		_ = connection.Close()
	}
}

// Continue ends the effect of Hang and Disconnect. It forwards the data that arrived during a hang, and all later data.
func (p *Proxy) Continue() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnected = false
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

func (p *Proxy) stop() {
	p.Continue()
	p.Disconnect()
	_ = p.listener.Close()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.track(client) {
			p.running.Go(func() { p.connect(client) })
		}
	}
}

// track stores a connection for Disconnect. It closes the connection and returns false while clients are disconnected.
func (p *Proxy) track(connection net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disconnected {
		_ = connection.Close()
		return false
	}
	p.connections[connection] = true
	return true
}

// connect forwards one connection in both directions until one side closes it.
func (p *Proxy) connect(client net.Conn) {
	p.await()
	server, err := net.Dial("tcp", p.target)
	if err != nil || !p.track(server) {
		p.forget(client)
		return
	}
	p.running.Go(func() { p.copy(server, client, p.observe()) })
	p.copy(client, server, io.Discard)
}

// copy forwards data in one direction, after the observer has it, and closes both connections at the end.
func (p *Proxy) copy(to, from net.Conn, observer io.Writer) {
	defer p.forget(to, from)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.await()
		_, _ = observer.Write(buffer[:n])
		if _, writeErr := to.Write(buffer[:n]); writeErr != nil || err != nil {
			return
		}
	}
}

// await waits until data is forwarded.
func (p *Proxy) await() {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	<-open
}

func (p *Proxy) forget(connections ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, connection := range connections {
		_ = connection.Close()
		delete(p.connections, connection)
	}
}
