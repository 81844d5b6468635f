package hostedapi

import (
	"errors"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

func TestPortRange(t *testing.T) {
	for text, good := range map[string]bool{"21000-25999": true, "1-1": true, "2-1": false, "0-5": false, "1-65536": false, "x": false, "": false} {
		var r PortRange
		if err := r.Set(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		} else if good && r.String() != text {
			t.Errorf("%q became %q", text, r.String())
		}
	}
}

// TestPortIsAwaited waits for a port that another process holds for a moment or longer, and ends the wait when the server is stopped.
func TestPortIsAwaited(t *testing.T) {
	for name, c := range map[string]struct {
		held, stopped time.Duration
		free          bool
		err           error
		after         time.Duration
	}{
		"Free":           {held: 0, stopped: time.Hour, free: true, after: 0},
		"HeldForAMoment": {held: 5 * portPause, stopped: time.Hour, free: true, after: 5 * portPause},
		"Held":           {held: time.Hour, stopped: time.Hour, after: portWait + portPause},
		"Stopped":        {held: time.Hour, stopped: portPause / 2, err: errStopped, after: portPause / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, stop := time.Now(), make(chan struct{})
				timer := time.AfterFunc(c.stopped, func() { close(stop) })
				defer timer.Stop()
				free, err := awaitPort(func() bool { return time.Since(began) >= c.held }, stop)
				if took := time.Since(began); free != c.free || !errors.Is(err, c.err) || took != c.after {
					t.Errorf("%t, %v after %s; want %t, %v after %s", free, err, took, c.free, c.err, c.after)
				}
			})
		})
	}
}

func TestPortInUseIsNotFree(t *testing.T) {
	_, port, err := net.SplitHostPort(netfault.ClosedAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	held, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if portFree(int32(held)) {
		t.Errorf("port %d is free although a socket is bound to it", held)
	}
}

func TestPickSkipsUsedPorts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	busy := listener.Addr().(*net.TCPAddr).Port
	only := PortRange{First: busy, Last: busy}
	if _, err := only.pick("a", func(int32) bool { return false }); !errors.Is(err, errNoPort) {
		t.Errorf("a port in use was picked: %v", err)
	}
	given := map[int32]bool{}
	r := DefaultPortRange
	for range 50 {
		port, err := r.pick("the same name", func(port int32) bool { return given[port] })
		if err != nil || given[port] || int(port) < r.First || int(port) > r.Last {
			t.Fatalf("picked %d: %v", port, err)
		}
		given[port] = true
	}
}
