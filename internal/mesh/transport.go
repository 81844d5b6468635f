package mesh

import (
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Transport connects a process with the other workloads of a region, and finds out who calls it. *Identity does so with certificates of the
// process, *Sidecar with those of the sidecar of Istio beside the process. A process has exactly one. An Authorizer enforces the same rules
// with both. Implementations are safe for concurrent use.
type Transport interface {
	// ID returns the identity of the process.
	ID() ID
	// Collectors returns the metrics of the identity.
	Collectors() []prometheus.Collector
	// ClientCredentials returns the credentials of gRPC connections to a server.
	ClientCredentials(server Peer) credentials.TransportCredentials
	// ClientTransport returns an HTTP transport for requests to a server. The caller may change all but its TLS configuration.
	ClientTransport(server Peer) *http.Transport
	// Scheme returns the scheme of the URLs of the region's HTTP servers: https or http.
	Scheme() string
	// PublicListener returns a listener for an HTTP server whose callers authenticate with tokens, and PublicHandler the handler of that
	// server.
	PublicListener(listener net.Listener) net.Listener
	PublicHandler(next http.Handler) http.Handler

	// listener returns the listener of an HTTP server whose callers the Authorizer authorizes.
	listener(listener net.Listener, a *Authorizer) net.Listener
	// requestPeer returns the identity of the caller of an HTTP request. The error is a *notAllowedError for a verified workload that is
	// not one of the clients.
	requestPeer(r *http.Request, clients []Peer) (ID, error)
	// serverOptions returns the credentials of a gRPC server, and how long its connections last.
	serverOptions(a *Authorizer) []grpc.ServerOption
}

var (
	_ Transport = (*Identity)(nil)
	_ Transport = (*Sidecar)(nil)
)

// Listener returns a listener for the HTTP server whose handler is that of Handler or HandlerFor. It accepts no connection that cannot have
// a caller with a right.
func (a *Authorizer) Listener(transport Transport, listener net.Listener) net.Listener {
	return transport.listener(listener, a)
}
