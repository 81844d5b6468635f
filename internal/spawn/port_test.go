package spawn_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestServersListenOnReservedPort starts one server after the other on a port, which refuses connections while none listens.
func TestServersListenOnReservedPort(t *testing.T) {
	port := must.Get(spawn.ReservePort())(t)
	defer port.Release()
	address := fmt.Sprintf("127.0.0.1:%d", port.Number)
	for range 3 {
		if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting without a server: %v", err)
		}
		listener := must.Get(net.Listen("tcp", address))(t)
		client := must.Get(net.Dial("tcp", address))(t)
		_ = client.Close()
		_ = listener.Close()
	}
}

// TestReservedPortIsNotGivenToOthers asks the kernel for so many ports that it would give each of them.
func TestReservedPortIsNotGivenToOthers(t *testing.T) {
	port := must.Get(spawn.ReservePort())(t)
	defer port.Release()
	for range 30_000 {
		other := must.Get(spawn.ReservePort())(t)
		other.Release()
		if other.Number == port.Number {
			t.Fatalf("port %d was reserved twice", port.Number)
		}
	}
}
