package process

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// LimitConnections returns a listener for a server of another protocol than HTTP. It closes new connections at once while most are open. Each connection
// has a deadline of headerTimeout for its handshake, until the server sets another one.
func LimitConnections(listener net.Listener, most int) net.Listener {
	return &limitedListener{Listener: listener, most: int64(most)}
}

type limitedListener struct {
	net.Listener
	most int64
	open atomic.Int64
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			_ = connection.SetDeadline(time.Now().Add(headerTimeout)) // the connection may be closed
			return &limitedConnection{Conn: connection, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		_ = connection.Close()
	}
}

type limitedConnection struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *limitedConnection) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
