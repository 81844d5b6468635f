package stubkubelet

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// lingerTimeout limits the time in which a closed connection discards what its peer still sends.
const lingerTimeout = 2 * time.Second

// lingeringWriter is a ResponseWriter whose hijacked connection is lingering.
type lingeringWriter struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (w lingeringWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &lingering{Conn: connection}, buffer, nil
}

// lingering is a connection that discards what its peer still sends after it is closed. TCP resets a connection that is closed with unread data, and
// the peer loses what it has not read: the exit status of a command that did not read all of its input.
type lingering struct {
	net.Conn
	once sync.Once
	err  error
}

// Close implements net.Conn. It returns when the peer has closed its side, or after lingerTimeout.
func (c *lingering) Close() error {
	c.once.Do(func() {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_ = c.SetReadDeadline(time.Now().Add(lingerTimeout))
			_, _ = io.Copy(io.Discard, c.Conn)
		}
		c.err = c.Conn.Close()
	})
	return c.err
}
