package main

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
)

// Local ports below those that the kernel chooses. The first ones are those of the load itself and of other programs.
const firstPort, lastPort = 10000, 32767

// usedPorts is the number of local ports that dial has used.
type usedPorts struct{ atomic.Int32 }

// dial connects from a local port that no connection has used before. For two minutes after a connection has failed, a node remembers the pod to which
// it has sent it. A new connection from the same port would be sent to this pod, too, also after its node was lost. The load opens so many
// connections that the kernel would choose such ports again.
func (u *usedPorts) dial(ctx context.Context, network, address string) (net.Conn, error) {
	port := firstPort + int(u.Add(1))
	if port > lastPort {
		return nil, fmt.Errorf("all local ports from %d to %d were used", firstPort, lastPort)
	}
	return (&net.Dialer{LocalAddr: &net.TCPAddr{Port: port}}).DialContext(ctx, network, address)
}
