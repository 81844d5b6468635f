package broker

import (
	"net"
	"testing"

	"github.com/mochi-mqtt/server/v2/listeners"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestListenerDisconnectsItself closes a listener. It must not call the engine's function, which waits forever for a client that ends meanwhile.
func TestListenerDisconnectsItself(t *testing.T) {
	network := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	disconnected := ""
	l := listener{listeners.NewNet("name", network), func(net.Conn) {}, func(name string) { disconnected = name }}
	l.Close(func(string) { t.Error("the engine disconnects the clients") })
	if disconnected != "name" {
		t.Errorf("the clients of %q were disconnected", disconnected)
	}
}
