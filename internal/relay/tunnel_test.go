package relay_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/relay"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// startTunnel runs a tunnel between two connections and returns their other ends.
func startTunnel(ctx context.Context, t *testing.T, limits relay.Limits, wrap func(net.Conn) net.Conn) (client, server *net.TCPConn, ended chan relay.Result) {
	t.Helper()
	client, fromClient := pair(t)
	toServer, server := pair(t)
	ended = make(chan relay.Result, 1)
	tunnels := relay.NewTunnels(limits)
	go func() { ended <- tunnels.Run(ctx, wrap(fromClient), wrap(toServer)) }()
	return client, server, ended
}

func plain(connection net.Conn) net.Conn { return connection }

// opaque hides that a connection is TCP, so that it has no descriptor.
type opaque struct{ net.Conn }

func (o opaque) CloseWrite() error { return o.Conn.(*net.TCPConn).CloseWrite() }

// TestTunnelCountsBothDirections sends more bytes than fit in buffers, ends one direction and then the other.
func TestTunnelCountsBothDirections(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{"TCP": plain, "other connections": func(c net.Conn) net.Conn { return opaque{c} }} {
		t.Run(name, func(t *testing.T) {
			client, server, ended := startTunnel(t.Context(), t, relay.Limits{Idle: time.Minute, Lifetime: time.Hour}, wrap)
			request := bytes.Repeat([]byte("request."), 1<<17)
			sent := make(chan error, 1)
			go func() {
				_, err := client.Write(request)
				if err == nil {
					err = client.CloseWrite()
				}
				sent <- err
			}()
			got, err := io.ReadAll(server)
			if err != nil || !bytes.Equal(got, request) {
				t.Fatalf("the server read %d bytes, %v", len(got), err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			must.Get(server.Write([]byte("response")))(t)
			must.Do(t, server.Close())
			if got, err := io.ReadAll(client); err != nil || string(got) != "response" {
				t.Errorf("the client read %q, %v", got, err)
			}
			want := relay.Result{End: relay.EndClosed, Sent: int64(len(request)), Received: 8}
			if got := <-ended; got != want {
				t.Errorf("the tunnel ended with %+v, want %+v", got, want)
			}
		})
	}
}

// TestTunnelEndsAtItsLimits reaches each limit. The clock is that of the bubble, so that connections are pipes.
func TestTunnelEndsAtItsLimits(t *testing.T) {
	quiet := func(net.Conn) {}
	sendForever := func(client net.Conn) {
		for {
			if _, err := client.Write(make([]byte, 1<<20)); err != nil {
				return // the tunnel has closed the connection
			}
		}
	}
	for name, tc := range map[string]struct {
		limits relay.Limits
		use    func(client net.Conn)
		want   relay.End
		after  time.Duration
	}{
		"idle":                      {relay.Limits{Idle: time.Minute, Lifetime: time.Hour}, quiet, relay.EndIdle, time.Minute},
		"lifetime":                  {relay.Limits{Idle: time.Hour, Lifetime: time.Minute}, quiet, relay.EndLifetime, time.Minute},
		"lifetime with bytes":       {relay.Limits{Idle: time.Hour, Lifetime: time.Minute}, sendForever, relay.EndLifetime, time.Minute},
		"bytes":                     {relay.Limits{Idle: time.Hour, Bytes: 4}, sendForever, relay.EndBytes, 0},
		"server that does not read": {relay.Limits{Idle: time.Minute}, sendForever, relay.EndIdle, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, fromClient := net.Pipe()
				toServer, server := net.Pipe()
				start := time.Now()
				var used sync.WaitGroup
				used.Go(func() { tc.use(client) })
				got := relay.NewTunnels(tc.limits).Run(t.Context(), fromClient, toServer)
				if took := time.Since(start); got.End != tc.want || took != tc.after {
					t.Errorf("the tunnel ended with %+v after %s, want %s after %s", got, took, tc.want, tc.after)
				}
				used.Wait()
				_ = server.Close()
			})
		})
	}
}

// TestTunnelIsNotIdleWhileOneDirectionIsActive sends bytes in one direction for several times the idle time. The other direction, which has
// none, does not end the tunnel.
func TestTunnelIsNotIdleWhileOneDirectionIsActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client, fromClient := net.Pipe()
		toServer, server := net.Pipe()
		ended := make(chan relay.Result, 1)
		go func() { ended <- relay.NewTunnels(relay.Limits{Idle: idle}).Run(ctx, fromClient, toServer) }()
		buffer := make([]byte, 1)
		for range 10 {
			must.Get(client.Write([]byte("x")))(t)
			must.Get(io.ReadFull(server, buffer))(t)
			time.Sleep(idle / 2)
		}
		cancel()
		if got := <-ended; got != (relay.Result{End: relay.EndCanceled, Sent: 10}) {
			t.Errorf("the tunnel ended with %+v", got)
		}
	})
}
