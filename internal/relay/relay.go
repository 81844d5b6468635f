// Package relay copies bytes between two connections.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Copy copies between two connections until both directions end, or until ctx ends. It closes both. The end of one direction is passed on:
// a connection that cannot end one direction is closed.
func Copy(ctx context.Context, client, server net.Conn) {
	closeBoth := func() { _ = errors.Join(client.Close(), server.Close()) }
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()
	defer closeBoth()
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(server, client)
		endWrites(server)
	})
	_, _ = io.Copy(client, server)
	endWrites(client)
	sending.Wait()
}

// endWrites ends one direction of a connection.
func endWrites(connection net.Conn) {
	if half, ok := connection.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = connection.Close()
}
