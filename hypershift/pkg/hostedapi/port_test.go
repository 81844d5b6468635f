package hostedapi

import (
	"errors"
	"net"
	"testing"
	"time"
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

// TestPortIsAwaited waits for a port that another process holds for a moment, and ends the wait when the server is stopped.
func TestPortIsAwaited(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	stop := make(chan struct{})
	time.AfterFunc(5*portPause, func() { _ = listener.Close() })
	if free, err := awaitPort(port, stop); !free || err != nil {
		t.Errorf("the port was not awaited: %v", err)
	}
	if listener, err = net.Listen("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	close(stop)
	if free, err := awaitPort(port, stop); free || !errors.Is(err, errStopped) {
		t.Errorf("a stopped server waits for its port: %t, %v", free, err)
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
