package mesh

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// Collectors implements Transport with the metric of the end of the certificate.
func (i *Identity) Collectors() []prometheus.Collector {
	return []prometheus.Collector{certfile.Collector(i.own.Certificate)}
}

// ClientCredentials implements Transport with ClientTLS.
func (i *Identity) ClientCredentials(server Peer) credentials.TransportCredentials {
	return credentials.NewTLS(i.ClientTLS(server))
}

// ClientTransport implements Transport with ClientTLS.
func (i *Identity) ClientTransport(server Peer) *http.Transport {
	return &http.Transport{TLSClientConfig: i.ClientTLS(server)}
}

// Scheme implements Transport.
func (i *Identity) Scheme() string { return "https" }

// PublicListener implements Transport. Clients need no certificate.
func (i *Identity) PublicListener(listener net.Listener) net.Listener {
	config := i.ServerTLS()
	config.ClientAuth, config.VerifyConnection = tls.NoClientCert, nil
	config.MinVersion = tls.VersionTLS12
	return tls.NewListener(listener, config)
}

// PublicHandler implements Transport. It returns next.
func (i *Identity) PublicHandler(next http.Handler) http.Handler { return next }

func (i *Identity) listener(listener net.Listener, a *Authorizer) net.Listener {
	return tls.NewListener(listener, a.ServerTLS(i))
}

// requestPeer returns the identity in the certificate of the caller. The handshake refused those that are not among the clients.
func (i *Identity) requestPeer(r *http.Request, _ []Peer) (ID, error) {
	if r.TLS != nil {
		if id, err := PeerOf(*r.TLS); err == nil {
			return id, ended(*r.TLS)
		}
	}
	return ID{}, errNoIdentity("The connection has no identity.")
}

func (i *Identity) serverOptions(a *Authorizer) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(endingCredentials{credentials.NewTLS(a.ServerTLS(i))}), grpc.KeepaliveParams(i.Keepalive())}
}
