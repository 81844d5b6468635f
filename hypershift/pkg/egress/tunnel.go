package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Ends of a tunnel, as in the label of the metric.
const (
	endClosed   = "closed"
	endIdle     = "idle"
	endLifetime = "lifetime"
	endBytes    = "bytes"
	endShutdown = "shutdown"
)

// copyBuffer is the size of the buffer of each direction of a tunnel.
const copyBuffer = 16 << 10

// errBytes ends a tunnel that has carried too many bytes.
var errBytes = errors.New("too many bytes")

// tunnel is one connection of a client to a target.
type tunnel struct {
	limits               Limits
	downstream, upstream net.Conn
	until                time.Time
	used                 atomic.Int64
}

// tunnel confirms the CONNECT and copies in both directions until both streams have ended or a limit is reached.
func (s *Server) tunnel(client, target string, downstream, upstream net.Conn) {
	t := &tunnel{limits: s.options.Limits, downstream: downstream, upstream: upstream, until: time.Now().Add(s.options.Limits.Lifetime)}
	t.active()
	finished := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-s.closing:
			t.close()
		case <-finished:
		}
	})
	end := s.endOf(t, t.run())
	close(finished)
	watching.Wait()
	s.metrics.ended.WithLabelValues(end).Inc()
	s.metrics.bytes.Add(float64(t.used.Load()))
	s.options.Log.Debug("egress tunnel ended", logkey.ControlPlane, client, logkey.Target, clip(target), logkey.Reason, end, logkey.Count, t.used.Load())
}

func (s *Server) endOf(t *tunnel, err error) string {
	switch {
	case errors.Is(err, errBytes):
		return endBytes
	case errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(t.until):
		return endLifetime
	case errors.Is(err, os.ErrDeadlineExceeded):
		return endIdle
	}
	select {
	case <-s.closing:
		return endShutdown
	default:
		return endClosed
	}
}

// run returns the error that ended the tunnel; nil if both streams have ended.
func (t *tunnel) run() error {
	if _, err := io.WriteString(t.downstream, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return err
	}
	ended := make(chan error, 2)
	for _, direction := range []struct{ to, from net.Conn }{{t.upstream, t.downstream}, {t.downstream, t.upstream}} {
		go func() { ended <- t.copy(direction.to, direction.from) }()
	}
	err := <-ended
	if err != nil {
		t.close()
		<-ended
		return err
	}
	return <-ended
}

// copy copies one direction until the stream ends.
func (t *tunnel) copy(to, from net.Conn) error {
	buffer := make([]byte, copyBuffer)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if t.used.Add(int64(n)) > t.limits.Bytes {
				return errBytes
			}
			t.active()
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return closeWrite(to)
		case err != nil:
			return err
		}
	}
}

// active moves the deadlines of both connections, because a byte in one direction keeps the other one open.
func (t *tunnel) active() {
	deadline := time.Now().Add(t.limits.Idle)
	if t.until.Before(deadline) {
		deadline = t.until
	}
	_ = t.downstream.SetDeadline(deadline)
	_ = t.upstream.SetDeadline(deadline)
}

func (t *tunnel) close() {
	_ = t.downstream.Close()
	_ = t.upstream.Close()
}

// closeWrite ends the stream in one direction.
func closeWrite(connection net.Conn) error {
	if half, ok := connection.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return connection.Close()
}
