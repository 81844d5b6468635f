package mqttlink

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pausedConn is a connection whose writes wait for the test when they begin and when they end.
type pausedConn struct {
	net.Conn
	began chan struct{}
	ended chan error
}

func newPausedConn() *pausedConn {
	return &pausedConn{began: make(chan struct{}), ended: make(chan error)}
}

// Write implements net.Conn.
func (c *pausedConn) Write(p []byte) (int, error) {
	c.began <- struct{}{}
	return len(p), <-c.ended
}

// ping calls p.ping and returns the channel of its result.
func ping(t *testing.T, p *pinger) <-chan error {
	result := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		result <- p.ping(ctx)
	}()
	synctest.Wait()
	return result
}

// TestPingIsSentAfterResponseDuringWrite lets the response to a ping arrive before the write of the ping returns, as it does if the
// writing goroutine is not scheduled. A ping that is requested then must be sent: no other response follows.
func TestPingIsSentAfterResponseDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newPausedConn()
		p := newPinger(conn)
		first := ping(t, p)
		<-conn.began
		p.PingResp()
		if err := <-first; err != nil {
			t.Errorf("first ping: %v", err)
		}
		second := ping(t, p)
		conn.ended <- nil
		select {
		case <-conn.began:
			p.PingResp()
			conn.ended <- nil
		case err := <-second:
			t.Fatalf("the second ping was not sent: %v", err)
		}
		if err := <-second; err != nil {
			t.Errorf("second ping: %v", err)
		}
	})
}

// TestPingsShareResponse requests several pings while the first one is being written. One response answers all of them, and no further
// ping is sent.
func TestPingsShareResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newPausedConn()
		p := newPinger(conn)
		results := []<-chan error{ping(t, p), ping(t, p), ping(t, p)}
		<-conn.began
		p.PingResp()
		conn.ended <- nil
		for i, result := range results {
			if err := <-result; err != nil {
				t.Errorf("ping %d: %v", i, err)
			}
		}
		synctest.Wait()
		select {
		case <-conn.began:
			t.Error("a ping was sent that nothing waits for")
			conn.ended <- nil
		default:
		}
	})
}

// TestFailedPingEndsAllRequests checks that each caller receives the error of a write.
func TestFailedPingEndsAllRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newPausedConn()
		p := newPinger(conn)
		results := []<-chan error{ping(t, p), ping(t, p)}
		<-conn.began
		broken := errors.New("broken")
		conn.ended <- broken
		for i, result := range results {
			if err := <-result; !errors.Is(err, broken) {
				t.Errorf("ping %d: %v", i, err)
			}
		}
	})
}
