package spawn_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

// TestServersListenOnReservedPort starts one server after the other on a port, which refuses connections while none listens.
func TestServersListenOnReservedPort(t *testing.T) {
	port, err := spawn.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Release()
	address := fmt.Sprintf("127.0.0.1:%d", port.Number)
	for range 3 {
		if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting without a server: %v", err)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
		_ = listener.Close()
	}
}

// TestReservedPortIsNotGivenToOthers asks the kernel for so many ports that it would give each of them.
func TestReservedPortIsNotGivenToOthers(t *testing.T) {
	port, err := spawn.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Release()
	for range 30_000 {
		other, err := spawn.ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		other.Release()
		if other.Number == port.Number {
			t.Fatalf("port %d was reserved twice", port.Number)
		}
	}
}
