package process

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"
)

// lastRequests is the time after the end of a client's certificate in which requests that began before can complete.
const lastRequests = time.Minute

// certificateEnds closes the connections of an HTTP server whose client certificates have ended. TLS verifies a certificate in the
// handshake only, so without it a client could use a connection for as long as it likes. It does not close hijacked connections.
//
// Clients renew their certificates before the end. In the last sixth of a certificate's lifetime the server closes each connection after
// a response, with GOAWAY in HTTP/2, and the client connects with its new certificate. So no request of such a client fails.
type certificateEnds struct {
	mu          sync.Mutex
	connections map[net.Conn]*clientConnection
}

// clientConnection is a connection of the server. The mutex of certificateEnds protects its fields.
type clientConnection struct {
	net.Conn
	// closing is the time from which each response closes the connection.
	closing time.Time
	// timer calls finish at the end of the client's certificate; nil before the first request, and without a certificate.
	timer *time.Timer
	// ended reports whether the certificate has ended, idle whether no request is running, closed whether the server has closed the connection.
	ended, idle, closed bool
}

// connectionKey is the key of the *clientConnection in the context of a request.
type connectionKey struct{}

// closeEnded makes a server close the connections of ended client certificates. It must be called before the server serves.
func closeEnded(server *http.Server) {
	e := &certificateEnds{connections: map[net.Conn]*clientConnection{}}
	inContext, onState := server.ConnContext, server.ConnState
	server.ConnContext = func(ctx context.Context, connection net.Conn) context.Context {
		if inContext != nil {
			ctx = inContext(ctx, connection)
		}
		return context.WithValue(ctx, connectionKey{}, e.opened(connection))
	}
	server.ConnState = func(connection net.Conn, state http.ConnState) {
		e.changed(connection, state)
		if onState != nil {
			onState(connection, state)
		}
	}
	server.Handler = e.handler(server.Handler)
}

func (e *certificateEnds) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connectionKey{}).(*clientConnection)
		if ok && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && !time.Now().Before(e.watch(c, r.TLS.PeerCertificates[0])) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// opened notes a new connection.
func (e *certificateEnds) opened(connection net.Conn) *clientConnection {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &clientConnection{Conn: connection}
	e.connections[connection] = c
	return c
}

// watch returns the time from which each response closes the connection. The first request on a connection starts its timer.
func (e *certificateEnds) watch(c *clientConnection, certificate *x509.Certificate) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	// In HTTP/2, the handler of a request may begin after its connection was closed.
	if c.timer == nil && !c.closed {
		c.closing = certificate.NotAfter.Add(-certificate.NotAfter.Sub(certificate.NotBefore) / 6)
		c.timer = time.AfterFunc(time.Until(certificate.NotAfter), func() { e.finish(c) })
	}
	return c.closing
}

// finish closes a connection whose certificate has ended, at once if it has no request, otherwise after its requests.
func (e *certificateEnds) finish(c *clientConnection) {
	e.mu.Lock()
	closing := c.idle || c.ended
	c.ended = true
	if !closing && !c.closed {
		c.timer.Reset(lastRequests)
	}
	e.mu.Unlock()
	if closing {
		_ = c.Close()
	}
}

// changed notes a new state of a connection.
func (e *certificateEnds) changed(connection net.Conn, state http.ConnState) {
	e.mu.Lock()
	c := e.connections[connection]
	if c == nil {
		e.mu.Unlock()
		return
	}
	c.idle = state == http.StateIdle
	closing := c.idle && c.ended
	if state == http.StateClosed || state == http.StateHijacked {
		c.closed = true
		if c.timer != nil {
			c.timer.Stop()
		}
		delete(e.connections, connection)
	}
	e.mu.Unlock()
	if closing {
		_ = connection.Close()
	}
}
