package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// End is why a tunnel has ended.
type End string

// The ends of a tunnel. EndClosed includes connections that one side has reset.
const (
	EndClosed   End = "closed"
	EndIdle     End = "idle"
	EndLifetime End = "lifetime"
	EndBytes    End = "bytes"
	EndCanceled End = "canceled"
)

// Limits bound a tunnel. A limit of 0 does not apply.
type Limits struct {
	// Idle is the time without a byte in either direction, and the longest time of one write to a side that does not read.
	Idle time.Duration
	// Lifetime is the time of the tunnel.
	Lifetime time.Duration
	// Bytes is the number of bytes in both directions.
	Bytes int64
}

// Result describes a tunnel that has ended.
type Result struct {
	End End
	// Sent are the bytes that the server was sent, and Received are those that the client was sent.
	Sent, Received int64
}

// bufferSize is the size of a buffer, in bytes.
const bufferSize = 16 << 10

var (
	errIdle     = errors.New("the tunnel is idle")
	errLifetime = errors.New("the lifetime of the tunnel is over")
	errBytes    = errors.New("the tunnel has carried too many bytes")
)

// Tunnels copies between connections within limits. It is safe for concurrent use: all tunnels share its buffers.
type Tunnels struct {
	limits  Limits
	buffers sync.Pool
}

// NewTunnels returns Tunnels with the limits of each tunnel.
func NewTunnels(limits Limits) *Tunnels {
	return &Tunnels{limits: limits, buffers: sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}}
}

// Run copies between two connections until both directions end, a limit is reached, or ctx ends. It closes both. The end of one direction is
// passed on, as by Copy. A TCP connection has no buffer while it waits for bytes, so that idle tunnels need little memory.
func (p *Tunnels) Run(ctx context.Context, client, server net.Conn) Result {
	t := &tunnel{Tunnels: p, start: time.Now()}
	closeBoth := func() { _ = errors.Join(client.Close(), server.Close()) }
	defer closeBoth()
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- t.copy(server, client, &t.sent) }()
	go func() { ended <- t.copy(client, server, &t.received) }()
	err := <-ended
	if err != nil {
		closeBoth()
		<-ended
	} else {
		err = <-ended
	}
	return Result{End: endOf(ctx, err), Sent: t.sent.Load(), Received: t.received.Load()}
}

func endOf(ctx context.Context, err error) End {
	switch {
	case errors.Is(err, errBytes):
		return EndBytes
	case errors.Is(err, errLifetime):
		return EndLifetime
	case errors.Is(err, errIdle):
		return EndIdle
	case ctx.Err() != nil:
		return EndCanceled
	}
	return EndClosed
}

type tunnel struct {
	*Tunnels
	start time.Time
	// last is when the last byte was read or written, as time since start.
	last           atomic.Int64
	sent, received atomic.Int64
}

// copy copies one direction until the stream ends. written counts its bytes.
func (t *tunnel) copy(to, from net.Conn, written *atomic.Int64) error {
	read := t.reader(from)
	if err := from.SetReadDeadline(t.deadline()); err != nil {
		return err
	}
	for {
		buffer, n, err := read()
		if n > 0 {
			t.active()
			err = errors.Join(t.write(to, (*buffer)[:n], written), err)
		}
		if buffer != nil {
			t.buffers.Put(buffer)
		}
		switch {
		case errors.Is(err, io.EOF):
			endWrites(to)
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err = t.expired(); err == nil {
				err = from.SetReadDeadline(t.deadline())
			}
		}
		if err != nil {
			return err
		}
	}
}

// write writes all bytes. Bytes that a side did not accept within the limits end the tunnel.
func (t *tunnel) write(to net.Conn, bytes []byte, written *atomic.Int64) error {
	if most := t.limits.Bytes; most > 0 && t.sent.Load()+t.received.Load()+int64(len(bytes)) > most {
		return errBytes
	}
	if err := to.SetWriteDeadline(t.deadline()); err != nil {
		return err
	}
	n, err := to.Write(bytes)
	written.Add(int64(n))
	t.active()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if expired := t.expired(); errors.Is(expired, errLifetime) {
			return expired
		}
		return errIdle
	}
	return err
}

func (t *tunnel) active() { t.last.Store(int64(time.Since(t.start))) }

// deadline returns when the tunnel ends if no further byte is copied; zero if there is no such limit.
func (t *tunnel) deadline() time.Time {
	var deadline time.Time
	if t.limits.Idle > 0 {
		deadline = t.start.Add(time.Duration(t.last.Load()) + t.limits.Idle)
	}
	if end := t.start.Add(t.limits.Lifetime); t.limits.Lifetime > 0 && (deadline.IsZero() || end.Before(deadline)) {
		deadline = end
	}
	return deadline
}

// expired returns which limit of time is reached, or nil if the other direction has moved the deadline.
func (t *tunnel) expired() error {
	now := time.Since(t.start)
	switch {
	case t.limits.Lifetime > 0 && now >= t.limits.Lifetime:
		return errLifetime
	case t.limits.Idle > 0 && now-time.Duration(t.last.Load()) >= t.limits.Idle:
		return errIdle
	}
	return nil
}

// reader returns a function that reads into a buffer of the pool. The caller returns the buffer to the pool.
func (t *tunnel) reader(from net.Conn) func() (*[]byte, int, error) {
	if connection, ok := from.(*net.TCPConn); ok {
		if raw, err := connection.SyscallConn(); err == nil {
			return func() (*[]byte, int, error) { return t.readWhenReady(raw) }
		}
	}
	return func() (*[]byte, int, error) {
		buffer := t.buffers.Get().(*[]byte)
		n, err := from.Read(*buffer)
		return buffer, n, err
	}
}

// readWhenReady reads from a connection. It takes a buffer from the pool only for attempts, and not while it waits.
func (t *tunnel) readWhenReady(raw syscall.RawConn) (buffer *[]byte, n int, err error) {
	waitErr := raw.Read(func(descriptor uintptr) bool {
		buffer = t.buffers.Get().(*[]byte)
		for {
			n, err = syscall.Read(int(descriptor), *buffer)
			if !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if errors.Is(err, syscall.EAGAIN) {
			t.buffers.Put(buffer)
			buffer = nil
			return false
		}
		return true
	})
	switch {
	case waitErr != nil:
		return buffer, 0, waitErr
	case err != nil:
		return buffer, 0, err
	case n == 0:
		return buffer, 0, io.EOF
	}
	return buffer, n, nil
}
