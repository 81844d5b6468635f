package process

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ConnectionLimit returns how many connections a server accepts that need a number of file descriptors each: most, or fewer if they would need more than
// three quarters of the descriptors that this process may have (RLIMIT_NOFILE). The others are for its files and for what it connects to. Without a free
// descriptor, a process fails at everything that it opens.
func ConnectionLimit(most, descriptors int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(uint64(most), max(limit.Cur/4*3/uint64(descriptors), 1)))
}

// LimitConnections returns a listener for a server of another protocol than HTTP. It closes new connections at once while the ConnectionLimit of most is reached.
// Each connection has a deadline of headerTimeout for its handshake, until the server sets another one.
func LimitConnections(listener net.Listener, most int) net.Listener {
	return &limitedListener{Listener: listener, most: int64(ConnectionLimit(most, 1))}
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
