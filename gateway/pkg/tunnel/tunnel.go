// Package tunnel connects the session gateway to hosted API servers that it cannot reach directly: those of private clusters, and those whose
// authorized CIDRs lack its addresses. No management cluster has a port for the region. Its agent, package agent, opens the connection:
//
//  1. The agent sends a WebSocket handshake with its token to Path. The headers of the response describe the replica.
//  2. Both sides exchange HTTP/2 (RFC 9113) in binary messages of the WebSocket. The gateway is the client.
//  3. For each connection to an API server, the gateway sends CONNECT with the ID of the cluster as authority. The status 200 begins the
//     tunnel. Any other status is a refusal, and its body the reason in plain text.
//  4. For a session with the management cluster itself, the gateway sends POST to GrantPath with the signed intent of an engineer, and gets a token. The
//     authority of CONNECT is APIServer then.
//
// The agent resolves the ID of the cluster itself, so that a tunnel leads to API servers and nowhere else. It transports TLS between the gateway and the
// API server, and sees neither requests nor certificates of sessions. HTTP/2 limits each connection on its own: one that is not read
// does not delay the others.
package tunnel

import (
	"io"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Path is the prefix of the paths of handshakes. The name of the management cluster follows.
const Path = mesh.TunnelPath

// Protocol is the subprotocol of the WebSocket.
const Protocol = "v1.tunnel.hcpmesh.io"

// The headers of the response to a handshake.
const (
	// ReplicaHeader is a text that differs for each process of the gateway, and ReplicasHeader the number of processes that agents have to reach.
	ReplicaHeader  = "Tunnel-Replica"
	ReplicasHeader = "Tunnel-Replicas"
	// LifetimeHeader is the number of seconds after which the gateway begins no connection in the tunnel, and the agent replaces it.
	LifetimeHeader = "Tunnel-Lifetime"
)

// The settings of HTTP/2 on both sides.
const (
	// StreamBuffer and ConnectionBuffer are the bytes that a side keeps of one connection, and of all connections of a tunnel, until they are
	// read.
	StreamBuffer     = 256 << 10
	ConnectionBuffer = 4 << 20
	// MaxFrame is the maximum size of a frame. The sender has a buffer of this size for each connection.
	MaxFrame = 16 << 10
	// MaxConnections is the maximum number of connections in a tunnel.
	MaxConnections = 1000
	// PingAfter is the time without a frame after which a side checks the other one, and PingTimeout the time that the other one has to respond.
	PingAfter   = 15 * time.Second
	PingTimeout = 10 * time.Second
)

// Conn is a net.Conn whose bytes are the binary messages of a WebSocket. Write must not be called concurrently.
type Conn struct {
	*websocket.Conn
	messages io.Reader
	closed   chan struct{}
	close    func() error
}

// NewConn returns the Conn of a WebSocket, which must not be used otherwise.
func NewConn(socket *websocket.Conn) *Conn {
	c := &Conn{Conn: socket, messages: websocket.JoinMessages(socket, ""), closed: make(chan struct{})}
	c.close = sync.OnceValue(func() error {
		defer close(c.closed)
		return socket.Close()
	})
	return c
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) { return c.messages.Read(p) }

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *Conn) Close() error { return c.close() }

// Closed returns a channel that is closed when this side has closed the connection.
func (c *Conn) Closed() <-chan struct{} { return c.closed }
