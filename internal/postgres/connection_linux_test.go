package postgres

import (
	"net"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestDialSetsTimeouts reads the options of the socket: their effect needs a second machine that vanishes.
func TestDialSetsTimeouts(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	conn := must.Get(dial(t.Context(), "tcp", listener.Addr().String()))(t)
	defer conn.Close()
	raw := must.Get(conn.(*net.TCPConn).SyscallConn())(t)
	for name, option := range map[string]struct{ level, name, want int }{
		"keep-alive":   {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"idle":         {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 10},
		"interval":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
		"count":        {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
		"user timeout": {syscall.IPPROTO_TCP, tcpUserTimeout, 25_000},
	} {
		var got int
		var failed error
		if err := raw.Control(func(fd uintptr) { got, failed = syscall.GetsockoptInt(int(fd), option.level, option.name) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if got != option.want {
			t.Errorf("%s is %d, want %d", name, got, option.want)
		}
	}
}

func TestUnavailableCodes(t *testing.T) {
	for sqlstate, want := range map[string]bool{
		"08006": true, "53300": true, "57P01": true, "57014": true, "25006": true, "25P03": true,
		"": false, "23505": false, "25P02": false, "40001": false, "XX000": false, "5": false,
	} {
		if got := unavailableCode(sqlstate); got != want {
			t.Errorf("%q: %t", sqlstate, got)
		}
	}
}
