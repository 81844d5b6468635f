package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// forward forwards the connections of a listener to connections that dial opens, until the context ends.
func (c *Cluster) forward(ctx context.Context, listener net.Listener, dial func(context.Context) (net.Conn, error)) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	c.running.Go(func() {
		defer stop()
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.relay(ctx, client, dial) })
		}
	})
}

// lostAfter is the time after which a connection to a node ends if the node was killed. PostgreSQL has the same limit for the sessions of
// services, so that a lost session releases its locks. lostPeers are the probes of a connection without data that is not acknowledged.
const lostAfter = 25 * time.Second

var lostPeers = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// relay copies between a connection and a new one until both directions end.
func (c *Cluster) relay(ctx context.Context, client net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer func() { _ = client.Close() }()
	if err := endIfLost(client); err != nil {
		return
	}
	server, err := dial(ctx)
	if err != nil {
		return // the client sees that the connection is closed
	}
	relay.Copy(ctx, client, server)
}

// endIfLost makes a connection end when its peer was lost, so that a relay ends the connection of its other side, too. A client of the relay
// does not notice the loss itself: the relay acknowledges what the client sends.
func endIfLost(connection net.Conn) error {
	tcp, ok := connection.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := errors.Join(tcp.SetKeepAliveConfig(lostPeers), setUserTimeout(tcp, lostAfter)); err != nil {
		return fmt.Errorf("limiting a connection to a lost peer: %w", err)
	}
	return nil
}

// lockFolder locks a folder against a second cluster. The lock ends with the process.
func lockFolder(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("a cluster runs in %s: %w", dir, err), file.Close())
	}
	return file, nil
}
