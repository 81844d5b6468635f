package installation

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// StartIngress serves admin on loopback, with a certificate for the name of its ingress and for 127.0.0.1, and returns the address.
func (s *Outside) StartIngress() (address string, err error) {
	return s.startRoute("admin", mesh.Admin)
}

// startRoute serves the pods of a program on loopback, with a certificate for the host of a part of the key ingress, and returns the address.
func (s *Outside) startRoute(key string, program mesh.Peer) (address string, err error) {
	r := s.settings()
	host := r.text("ingress", key, "host")
	if r.err != nil {
		return "", r.err
	}
	return s.serveGateway(program, host, &tls.Config{RootCAs: s.roots(), MinVersion: tls.VersionTLS12, ServerName: fmt.Sprintf("%s.%s.svc", program, program)})
}

// Proxy is an HTTP proxy on loopback for names that do not resolve on the machine: those of admin and of the session gateway, and those of the API servers of
// hosted clusters, in the DNS zone of the clusters and on their management cluster. It connects to nothing else. Pods of the region reach
// the API servers through it, too, under the names of the zone.
type Proxy struct {
	// URL is the URL of the proxy.
	URL string
	// Admin is the address of admin on loopback.
	Admin string
	// access is the address of the session gateway on loopback. adminHost and accessHost are the names of both at the ingress.
	access, adminHost, accessHost string
	services                      *Outside
	zone                          string
	// ended is done, and tunnels are no more, when the services are closed.
	ended   context.Context
	tunnels sync.WaitGroup

	mu sync.Mutex
	// azure and management are nil until Clusters.
	azure      *Azure
	management *Outside
}

// StartProxy serves admin and the session gateway on loopback, an HTTP proxy to it, and the API servers of hosted clusters in the cluster of the region.
func (s *Outside) StartProxy(ctx context.Context) (*Proxy, error) {
	r := s.settings()
	p := &Proxy{services: s, adminHost: r.text("ingress", "admin", "host"), accessHost: r.text("ingress", "access", "host"), zone: r.text("dns", "clustersZone")}
	if r.err != nil {
		return nil, r.err
	}
	var err error
	if p.Admin, err = s.StartIngress(); err != nil {
		return nil, err
	}
	if p.access, err = s.startRoute("access", mesh.GatewayAccess); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p.URL = "http://" + listener.Addr().String()
	// The proxy does not wait for its tunnels: HTTP's server does not know them.
	ended, cancel := context.WithCancel(context.Background())
	p.ended = ended
	s.onClose(func() error {
		cancel()
		p.tunnels.Wait()
		return nil
	})
	s.serve(listener, http.HandlerFunc(p.connect))
	return p, p.serveHosted(ctx)
}

// Clusters makes the proxy connect to the API servers of hosted clusters on a management cluster.
func (p *Proxy) Clusters(azure *Azure, management *Outside) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.azure, p.management = azure, management
}

// connect opens a tunnel.
func (p *Proxy) connect(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect {
		http.Error(w, "this proxy supports CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	server, err := p.dial(request.Context(), request.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = server.Close()
		return
	}
	p.tunnels.Go(func() {
		if _, err := client.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
			_ = client.Close()
			_ = server.Close()
			return
		}
		relay.Copy(p.ended, client, server)
	})
}

// dial connects to a name and a port.
func (p *Proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	azure, management := p.azure, p.management
	p.mu.Unlock()
	switch record, isCluster := strings.CutSuffix(host, "."+p.zone); {
	case host == p.adminHost && port == "443":
		return (&net.Dialer{}).DialContext(ctx, "tcp", p.Admin)
	case host == p.accessHost && port == "443":
		return (&net.Dialer{}).DialContext(ctx, "tcp", p.access)
	case isCluster && azure != nil:
		name, err := azure.resolve(ctx, record)
		if err != nil {
			return nil, err
		}
		return management.dialHosted(ctx, name)
	case management != nil && isHosted(host):
		return management.dialHosted(ctx, host)
	}
	return nil, fmt.Errorf("this proxy connects to admin, to the session gateway and to the API servers of hosted clusters only, and not to %s", address)
}

// isHosted reports whether a name is that of the Service of a hosted API server on its management cluster.
func isHosted(name string) bool {
	return strings.HasPrefix(name, "kube-apiserver.") && strings.HasSuffix(name, ".svc")
}

// dialHosted connects to a pod of a hosted API server by the name of its Service.
func (s *Outside) dialHosted(ctx context.Context, name string) (net.Conn, error) {
	service, namespace, ok := strings.Cut(strings.TrimSuffix(name, ".svc"), ".")
	if !ok || !isHosted(name) {
		return nil, fmt.Errorf("%s is not a hosted API server", name)
	}
	return s.DialPod(ctx, namespace, "app="+service, hostedPort)
}

// hostedPort is the port of hosted API servers in their pods.
const hostedPort = "6443"

// resolve returns the name to which a record of the zone of clusters refers.
func (a *Azure) resolve(ctx context.Context, record string) (string, error) {
	r := a.services.settings()
	id := r.regionGroup() + "/providers/Microsoft.Network/dnsZones/" + r.text("dns", "clustersZone") + "/CNAME/" + record
	if r.err != nil {
		return "", r.err
	}
	var found struct {
		Properties struct {
			CNAMERecord struct {
				CNAME string `json:"cname"`
			} `json:"CNAMERecord"`
		} `json:"properties"`
	}
	err := a.call(ctx, http.MethodGet, id, dnsVersion, nil, &found)
	return found.Properties.CNAMERecord.CNAME, err
}
