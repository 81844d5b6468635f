package spawn

import (
	"fmt"
	"syscall"
)

// Port is a reserved TCP port on loopback for a server that listens later, or again after a restart. The port of a closed listener is not reserved: the
// kernel may give it to another process. A Port is bound to a socket that does not listen, so that the kernel gives it to nobody who does not name it. A server that
// sets SO_REUSEADDR, as servers in Go and PostgreSQL do, can listen on it.
type Port struct {
	// Number is the number of the port.
	Number int
	socket int
}

// ReservePort reserves a free port until Release.
func ReservePort() (*Port, error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	syscall.CloseOnExec(socket)
	number, err := bindPort(socket)
	if err != nil {
		_ = syscall.Close(socket)
		return nil, fmt.Errorf("reserving a port: %w", err)
	}
	return &Port{Number: number, socket: socket}, nil
}

// bindPort binds a socket to a free port that other sockets may share.
func bindPort(socket int) (int, error) {
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	return bound.(*syscall.SockaddrInet4).Port, nil
}

// Release ends the reservation. A server that listens on the port keeps it.
func (p *Port) Release() { _ = syscall.Close(p.socket) }
