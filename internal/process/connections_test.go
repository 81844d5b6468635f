package process

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func dialPipe(listener *pipes) net.Conn {
	client, _ := listener.dial(context.Background(), "", "")
	return client
}

// TestConnectionLimitFollowsDescriptors lowers the number of files that this process may open.
func TestConnectionLimitFollowsDescriptors(t *testing.T) {
	var before syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	lower := before
	lower.Cur = 1024
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower))
	for _, tc := range []struct{ most, descriptors, want int }{{100, 1, 100}, {8192, 1, 768}, {20_000, 2, 384}, {1, 4096, 1}} {
		if got := ConnectionLimit(tc.most, tc.descriptors); got != tc.want {
			t.Errorf("at most %d connections of %d descriptors: %d, want %d", tc.most, tc.descriptors, got, tc.want)
		}
	}
	if listener := LimitConnections(nil, 8192).(*limitedListener); listener.most != 768 {
		t.Errorf("a listener accepts %d connections", listener.most)
	}
}

// TestOtherConnectionsAreLimited opens the maximum of connections of a listener, which send nothing, and more before and after one is closed.
func TestOtherConnectionsAreLimited(t *testing.T) {
	const most = 3
	synctest.Test(t, func(t *testing.T) {
		inner := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
		listener, accepted := LimitConnections(inner, most), make(chan net.Conn, 2*most)
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					close(accepted)
					return
				}
				accepted <- connection
			}
		}()
		for range 2 {
			var clients []net.Conn
			for range most {
				clients = append(clients, dialPipe(inner))
			}
			refused := dialPipe(inner)
			if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a connection beyond the maximum is open: %v", err)
			}
			began := time.Now()
			for range most {
				connection := <-accepted
				if _, err := connection.Read(make([]byte, 1)); err == nil {
					t.Error("a connection that sends nothing was read")
				}
				if took := time.Since(began); took != headerTimeout {
					t.Errorf("a server waits %s for the first byte, want %s", took, headerTimeout)
				}
				for range 2 { // the second changes nothing
					_ = connection.Close()
				}
			}
			for _, client := range append(clients, refused) {
				_ = client.Close()
			}
		}
		_ = listener.Close()
		if _, open := <-accepted; open {
			t.Error("a connection beyond the maximum was accepted")
		}
	})
}
