package hostedapi

import (
	"errors"
	"net"
	"testing"
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
