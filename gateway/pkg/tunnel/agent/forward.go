package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// dialTimeout limits the connection to an API server, with the request for its address.
const dialTimeout = 5 * time.Second

// ErrUnknownCluster is the error of a Resolver for a cluster that the management cluster does not host.
var ErrUnknownCluster = errors.New("the management cluster does not host the cluster")

// Resolver finds API servers.
type Resolver interface {
	// Address returns host:port of the API server of a cluster. The chain of the error contains ErrUnknownCluster if there is none.
	Address(ctx context.Context, clusterID string) (string, error)
}

// forward serves a request of the gateway for a connection.
func (a *Agent) forward(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost && r.URL.Path == tunnel.GrantPath && a.grants == nil:
		http.Error(w, "The management cluster has no sessions: its agent has no --intent-keys-file.", http.StatusNotImplemented)
		return
	case r.Method == http.MethodPost && r.URL.Path == tunnel.GrantPath:
		a.grants.ServeHTTP(w, r)
		return
	case r.Method != http.MethodConnect:
		http.Error(w, "A tunnel has only the method CONNECT, and POST of "+tunnel.GrantPath+".", http.StatusMethodNotAllowed)
		return
	}
	server, err := a.dial(r.Context(), r.Host)
	switch {
	case errors.Is(err, ErrUnknownCluster):
		a.connections.WithLabelValues(outcomeUnknown).Inc()
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		a.connections.WithLabelValues(outcomeUnreachable).Inc()
		a.Log.WarnContext(r.Context(), "an API server cannot be reached", logkey.ClusterID, r.Host, logkey.Error, err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	a.connections.WithLabelValues(outcomeConnected).Inc()
	defer func() { _ = server.Close() }()
	// The copies end when the gateway or the API server closes the connection, or when the gateway ends the stream.
	stop := context.AfterFunc(r.Context(), func() { _ = server.Close() })
	defer stop()
	w.WriteHeader(http.StatusOK)
	out := &flushWriter{w, http.NewResponseController(w)}
	if out.controller.Flush() != nil {
		return
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(server, r.Body) // the stream ends with an error
		_ = closeWrite(server)
	})
	_, _ = io.Copy(out, server)
	_ = server.Close()
	_ = r.Body.Close()
	sending.Wait()
}

// dial connects to the API server of a cluster.
func (a *Agent) dial(ctx context.Context, clusterID string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	address, err := a.address(ctx, clusterID)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// address returns host:port of the API server of a cluster, or of the management cluster.
func (a *Agent) address(ctx context.Context, clusterID string) (string, error) {
	if clusterID != tunnel.APIServer {
		return a.Resolver.Address(ctx, clusterID)
	}
	if a.Granter == nil {
		return "", ErrUnknownCluster
	}
	return a.Granter.Address(), nil
}

// closeWrite ends the direction to the API server.
func closeWrite(c net.Conn) error {
	if tcp, ok := c.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return c.Close()
}

// flushWriter sends each part at once.
type flushWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
}

func (w *flushWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if err == nil {
		err = w.controller.Flush()
	}
	return n, err
}
