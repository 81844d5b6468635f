package broker

import (
	"net"
	"sync"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
)

// connections lets one connection of each client ID have a session. A new connection waits until the engine has processed the end of the
// previous one. Otherwise, the end of the previous connection could remove the session and the subscriptions of the new one: the engine
// finds both by the client ID. The new connection would stay open and receive nothing.
type connections struct {
	mu   sync.Mutex
	byID map[string]*connection
	// byConn has the same connections by their network connection.
	byConn map[net.Conn]*connection
}

type connection struct {
	client *mqtt.Client
	// ended is closed when the engine has processed the end.
	ended chan struct{}
}

func newConnections() *connections {
	return &connections{byID: map[string]*connection{}, byConn: map[net.Conn]*connection{}}
}

// begin registers the connection of a client. While another connection has the client ID, it calls closePrevious with it and waits for its end.
func (c *connections) begin(cl *mqtt.Client, closePrevious func(*mqtt.Client)) {
	for {
		previous := c.register(cl)
		if previous == nil {
			return
		}
		closePrevious(previous.client)
		<-previous.ended
	}
}

// register returns the connection that has the client ID, or nil after it has registered that of cl.
func (c *connections) register(cl *mqtt.Client) (previous *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if previous := c.byID[cl.ID]; previous != nil {
		return previous
	}
	own := &connection{client: cl, ended: make(chan struct{})}
	c.byID[cl.ID], c.byConn[cl.Net.Conn] = own, own
	return nil
}

// end removes a network connection of which the engine has processed the end. It does nothing if the connection had no session.
func (c *connections) end(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.byConn[conn]; own != nil {
		delete(c.byConn, conn)
		delete(c.byID, own.client.ID)
		close(own.ended)
	}
}

// listener is a listener of the engine that calls ended with each connection of which the engine has processed the end. Close calls
// disconnectAll with the name of the listener.
type listener struct {
	*listeners.Net
	ended         func(net.Conn)
	disconnectAll func(listener string)
}

// Serve implements listeners.Listener.
func (l listener) Serve(establish listeners.EstablishFn) {
	l.Net.Serve(func(id string, conn net.Conn) error {
		defer l.ended(conn)
		return establish(id, conn)
	})
}

// Close implements listeners.Listener. The engine's function locks its clients for reading twice, so that it waits forever for a client that ends
// between the two.
func (l listener) Close(listeners.CloseFn) { l.Net.Close(l.disconnectAll) }
