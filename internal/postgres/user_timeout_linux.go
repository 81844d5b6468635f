package postgres

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, which package syscall does not define: the milliseconds for which sent
// data may stay unacknowledged.
const tcpUserTimeout = 0x12

// setUserTimeout makes a socket fail when its peer acknowledges nothing. Keep-alive probes do not cover that case: the kernel
// sends none while data is unacknowledged.
func setUserTimeout(network, _ string, raw syscall.RawConn) error {
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
		return nil
	}
	var optionErr error
	if err := raw.Control(func(fd uintptr) {
		timeout := int((keepAliveIdle + peerTimeout).Milliseconds())
		optionErr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, timeout)
	}); err != nil {
		return err
	}
	return optionErr
}
