package netfault

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

// ClosedAddress returns host:port on loopback, which refuses connections until the test ends. The address of a closed listener does not: another
// listener, of the same test or of another process, may get its port. The port is bound to a socket that does not listen, so that nobody
// else gets it.
func ClosedAddress(t testing.TB) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	syscall.CloseOnExec(socket)
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}

// ReserveAddress returns host:port on loopback for a server that a test stops and starts again at the same address. The address refuses connections while
// no server listens.
func ReserveAddress(t testing.TB) string {
	t.Helper()
	port, err := spawn.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return fmt.Sprintf("127.0.0.1:%d", port.Number)
}
