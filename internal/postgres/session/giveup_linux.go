package session

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, which package syscall does not name: for how many milliseconds what was
// sent may be without an acknowledgement.
const tcpUserTimeout = 0x12

// giveUp has a socket give up a peer that acknowledges nothing. Keep-alives say nothing while something is on its way.
func giveUp(network, _ string, raw syscall.RawConn) error {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int((silence + dead).Milliseconds()))
	}); err != nil {
		return err
	}
	return failed
}
