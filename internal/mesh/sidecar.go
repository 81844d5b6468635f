package mesh

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// ClientCertHeader is the header in which a sidecar tells its program who calls. gRPC has it in the metadata.
const ClientCertHeader = "x-forwarded-client-cert"

// Sidecar is a Transport of a process beside a sidecar of Istio, which has the certificates. The process accepts connections without TLS,
// only from its sidecar, and reads the identity of each caller from the header that the sidecar adds to the request. It makes connections
// without TLS, which the sidecar encrypts: the sidecar, and not the process, verifies the identity of the server. So the chart of the mesh
// must require mutual TLS for all of them.
//
// A sidecar connects from 127.0.0.6 or ::6, which no other pod can have. Its connections carry requests of different callers, so each
// request has an identity of its own.
type Sidecar struct {
	id       ID
	gateways []string
}

// NewSidecar returns the Transport of a process whose sidecar has the SPIFFE ID id. gateways are the SPIFFE IDs of its ingress gateways.
// A request of one of them has the identity ARMFrontDoor. Without gateways, no request has it.
func NewSidecar(id string, gateways ...string) (*Sidecar, error) {
	own, err := exactID(id)
	if err != nil {
		return nil, err
	}
	for _, gateway := range gateways {
		parsed, err := url.Parse(gateway)
		if err != nil || parsed.Scheme != "spiffe" || parsed.Path == "" || parsed.String() != gateway {
			return nil, fmt.Errorf("the gateway %q is not a SPIFFE ID", gateway)
		}
		if parsed.Host != own.TrustDomain {
			return nil, fmt.Errorf("the gateway %q is not in the trust domain %s", gateway, own.TrustDomain)
		}
	}
	return &Sidecar{id: own, gateways: gateways}, nil
}

// exactID parses the only text of a SPIFFE ID.
func exactID(text string) (ID, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return ID{}, fmt.Errorf("%q is not a SPIFFE ID", text)
	}
	id, err := ParseID(parsed)
	if err != nil {
		return ID{}, err
	}
	if id.URL().String() != text {
		return ID{}, fmt.Errorf("%q is not the SPIFFE ID %s", text, id.URL())
	}
	return id, nil
}

// ID implements Transport.
func (s *Sidecar) ID() ID { return s.id }

// Collectors implements Transport. The sidecar has the metrics of its certificate.
func (s *Sidecar) Collectors() []prometheus.Collector { return nil }

// ClientCredentials implements Transport.
func (s *Sidecar) ClientCredentials(Peer) credentials.TransportCredentials {
	return insecure.NewCredentials()
}

// ClientTransport implements Transport.
func (s *Sidecar) ClientTransport(Peer) *http.Transport { return &http.Transport{} }

// Scheme implements Transport.
func (s *Sidecar) Scheme() string { return "http" }

// PublicListener implements Transport. It accepts only connections of the sidecar.
func (s *Sidecar) PublicListener(listener net.Listener) net.Listener {
	return sidecarListener{listener}
}

// PublicHandler implements Transport. It responds with status 401 to requests that the sidecar did not receive from a workload of the region:
// with mutual TLS everywhere, everybody is a workload or behind a gateway.
func (s *Sidecar) PublicHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := s.caller(addressOf(r), r.Header.Values(ClientCertHeader))
		if err == nil && id.TrustDomain != s.id.TrustDomain {
			err = errNoIdentity("The caller belongs to another trust domain.")
		}
		if err != nil {
			respond(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Sidecar) listener(listener net.Listener, _ *Authorizer) net.Listener {
	return sidecarListener{listener}
}

func (s *Sidecar) requestPeer(r *http.Request, clients []Peer) (ID, error) {
	return s.client(addressOf(r), r.Header.Values(ClientCertHeader), clients)
}

// serverOptions sets no age of connections: those of the sidecar never leave the pod, and it has the connections of the clients.
func (s *Sidecar) serverOptions(*Authorizer) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Creds(sidecarCredentials{insecure.NewCredentials(), s}), grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second})}
}

// client returns the identity of the caller of a request, or a *notAllowedError if it is not one of the clients.
func (s *Sidecar) client(from netip.Addr, headers []string, clients []Peer) (ID, error) {
	id, err := s.caller(from, headers)
	if err != nil {
		return ID{}, err
	}
	if id.TrustDomain != s.id.TrustDomain || !slices.Contains(clients, id.Peer) {
		return ID{}, &notAllowedError{from: id, to: s.id}
	}
	return id, nil
}

// caller returns the identity in the element that the sidecar appended to the header.
func (s *Sidecar) caller(from netip.Addr, headers []string) (ID, error) {
	if !isSidecar(from) {
		return ID{}, errNoIdentity("The connection is not one of the sidecar.")
	}
	if len(headers) != 1 {
		return ID{}, errNoIdentity("The request has %d headers %s, want one.", len(headers), ClientCertHeader)
	}
	last, err := lastForwarded(headers[0])
	switch {
	case err != nil:
		return ID{}, errNoIdentity("The header %s is malformed: %s.", ClientCertHeader, err)
	case len(last.by) != 1 || last.by[0] != s.id.URL().String():
		return ID{}, errNoIdentity("The last element of the header %s is not of the sidecar.", ClientCertHeader)
	case len(last.uris) != 1:
		return ID{}, errNoIdentity("The certificate of the caller has %d URIs, want one SPIFFE ID.", len(last.uris))
	case slices.Contains(s.gateways, last.uris[0]):
		return ID{TrustDomain: s.id.TrustDomain, Peer: ARMFrontDoor}, nil
	}
	id, err := exactID(last.uris[0])
	if err != nil || id.Peer == ARMFrontDoor {
		return ID{}, errNoIdentity("The certificate of the caller has no SPIFFE ID of a workload.")
	}
	return id, nil
}

// isSidecar reports whether an address is one from which a sidecar of Istio connects to its program.
func isSidecar(from netip.Addr) bool {
	from = from.Unmap()
	return from == netip.AddrFrom4([4]byte{127, 0, 0, 6}) || from == netip.AddrFrom16([16]byte{15: 6})
}

// addressOf returns the address of the client of an HTTP request; the zero Addr if it has none.
func addressOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr()
}

// remoteAddress returns the address of the other side of a connection; the zero Addr if it has none.
func remoteAddress(connection net.Conn) netip.Addr {
	address, _ := connection.RemoteAddr().(*net.TCPAddr)
	return address.AddrPort().Addr()
}

// sidecarListener accepts only connections of the sidecar, and closes all others.
type sidecarListener struct{ net.Listener }

// Accept implements net.Listener.
func (l sidecarListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if isSidecar(remoteAddress(connection)) {
			return connection, nil
		}
		_ = connection.Close()
	}
}

// sidecarCredentials are credentials of a gRPC server that accept only connections of the sidecar, without TLS.
type sidecarCredentials struct {
	credentials.TransportCredentials
	sidecar *Sidecar
}

// sidecarInfo marks a connection of the sidecar.
type sidecarInfo struct {
	credentials.CommonAuthInfo
	sidecar *Sidecar
	from    netip.Addr
}

// AuthType implements credentials.AuthInfo.
func (sidecarInfo) AuthType() string { return "sidecar" }

// ServerHandshake implements credentials.TransportCredentials.
func (c sidecarCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	from := remoteAddress(raw)
	if !isSidecar(from) {
		return nil, nil, fmt.Errorf("the connection from %s is not one of the sidecar", from)
	}
	return raw, sidecarInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}, c.sidecar, from}, nil
}

// Clone implements credentials.TransportCredentials.
func (c sidecarCredentials) Clone() credentials.TransportCredentials {
	return sidecarCredentials{c.TransportCredentials.Clone(), c.sidecar}
}
