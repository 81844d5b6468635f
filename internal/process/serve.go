package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// ServeHTTP serves on a listener until ctx ends, with TLS if the server has a TLS configuration. Then it accepts no new requests,
// waits up to grace for those that are running, and closes their connections. It closes the listener. While the process of ctx drains,
// each response closes its connection. The server also closes the connections of clients whose certificates have ended.
func ServeHTTP(ctx context.Context, server *http.Server, listener net.Listener, grace time.Duration) error {
	server.Handler = drainOf(ctx).closeConnections(server.Handler)
	closeEnded(server)
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			served <- server.ServeTLS(listener, "", "")
			return
		}
		served <- server.Serve(listener)
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serving %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", listener.Addr(), err)
	}
	return nil
}

// Listen listens on a TCP address, the value of the flag --listen. If addressFile, the value of --address-file, is not empty, it
// writes the listener's address to that file, for the process that started this one. An error names the flag.
func Listen(address, addressFile string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if addressFile == "" {
		return listener, nil
	}
	if err := disk.Replace(addressFile, []byte(listener.Addr().String()+"\n"), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("--address-file: %w", err), listener.Close())
	}
	return listener, nil
}
