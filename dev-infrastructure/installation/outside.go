package installation

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
)

// Outside are the services outside of one cluster. It is safe for concurrent use after the assignment of its fields.
type Outside struct {
	// Cluster is the first cluster; Move replaces it.
	Cluster *kubernetes.Cluster
	// Target is the region, or a stamp for a management cluster.
	Target    values.Target
	Authority *mesh.Authority
	// Dir is the folder of the files. They are secret.
	Dir string
	// Log receives the errors of background work; nil discards them.
	Log *slog.Logger

	mu      sync.Mutex
	closers []func() error
	// moved is the cluster of the last Move; nil before the first one.
	moved *kubernetes.Cluster
}

// Move makes the services available in another cluster, which takes the place of a lost one.
func (s *Outside) Move(ctx context.Context, to *kubernetes.Cluster) error {
	if err := to.ForwardHostsOf(ctx, s.cluster()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = to
	return nil
}

// cluster returns the current cluster.
func (s *Outside) cluster() *kubernetes.Cluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.moved, s.Cluster)
}

// Close stops all services, the last one first.
func (s *Outside) Close() error {
	s.mu.Lock()
	closers := s.closers
	s.closers = nil
	s.mu.Unlock()
	var failed error
	for _, stop := range slices.Backward(closers) {
		failed = errors.Join(failed, stop())
	}
	return failed
}

// onClose adds a function that Close calls.
func (s *Outside) onClose(stop func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers = append(s.closers, stop)
}

func (s *Outside) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// settings reads keys of a configuration. err is the error of the first key that is missing.
type settings struct {
	target values.Target
	err    error
}

func (s *Outside) settings() *settings { return &settings{target: s.Target} }

// text returns the value of a key.
func (r *settings) text(path ...string) string {
	n := r.target.Configuration.Get(path...)
	if n == nil {
		if r.err == nil {
			r.err = fmt.Errorf("%s has no key %s", r.target.Name, strings.Join(path, "."))
		}
		return ""
	}
	return fmt.Sprint(n.Value)
}

// first returns the first item of a list.
func (r *settings) first(path ...string) string {
	n := r.target.Configuration.Get(path...)
	if n == nil || len(n.Items) == 0 {
		if r.err == nil {
			r.err = fmt.Errorf("%s has no items in %s", r.target.Name, strings.Join(path, "."))
		}
		return ""
	}
	return fmt.Sprint(n.Items[0].Value)
}

// host returns the host of the URL at a key.
func (r *settings) host(path ...string) string {
	address := r.text(path...)
	parsed, err := url.Parse(address)
	if r.err == nil && (err != nil || parsed.Hostname() == "") {
		r.err = fmt.Errorf("%s: %s: %q has no host: %w", r.target.Name, strings.Join(path, "."), address, err)
	}
	if r.err != nil {
		return ""
	}
	return parsed.Hostname()
}

// mqtt returns the host and the port of the MQTT broker.
func (r *settings) mqtt() (host, port string) {
	host, port, err := net.SplitHostPort(r.text("eventGrid", "mqttAddress"))
	if r.err == nil && err != nil {
		r.err = err
	}
	return host, port
}

// postgres returns the names of the flexible servers.
func (r *settings) postgres() []string {
	var hosts []string
	for _, server := range []string{"maestro", "clusterService"} {
		hosts = append(hosts, r.text("postgres", server, "server")+"."+r.text("endpoints", "postgresSuffix"))
	}
	return hosts
}

// hosted returns the names of the API servers of hosted clusters.
func (r *settings) hosted() string { return "*." + r.text("dns", "clustersZone") }

// Hosts returns the names under which Outside serves in the cluster of a region, for kubernetes.Options.
func Hosts(target values.Target) ([]string, error) {
	r := &settings{target: target}
	mqtt, _ := r.mqtt()
	hosts := slices.Concat(r.postgres(), r.azure(), []string{
		r.host("clusterService", "updateGraphUrl"), r.host("clusterService", "releaseSignatures"), r.host("endpoints", "authority"),
		r.host("cosmos", "endpoint"), r.host("admin", "ticketValidator", "endpoint"), mqtt, r.hosted()})
	return hosts, r.err
}

// StampHosts returns the names under which Outside serves in a management cluster.
func StampHosts(target values.Target) ([]string, error) {
	r := &settings{target: target}
	mqtt, _ := r.mqtt()
	return []string{mqtt, r.host("endpoints", "authority"), r.text("ingress", "tunnels", "host")}, r.err
}

// PostgresHosts returns the names of the flexible servers of a region.
func PostgresHosts(target values.Target) ([]string, error) {
	r := &settings{target: target}
	hosts := r.postgres()
	return hosts, r.err
}

// Identity issues a certificate for a client or a program outside of the cluster, and returns its folder. The pods have others.
func (s *Outside) Identity(peer mesh.Peer, hosts ...string) (dir string, err error) {
	dir = filepath.Join(s.Dir, "outside", string(peer))
	return dir, s.Authority.Issue(dir, peer, hosts...)
}

// Forward forwards a port of a host in the cluster to an address on loopback.
func (s *Outside) Forward(ctx context.Context, host, port, address string) error {
	return s.cluster().ForwardHost(ctx, host, port, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
}

// serveHTTPS serves the port of HTTPS of hosts with the certificate of a peer, also for 127.0.0.1. It returns its address on loopback.
func (s *Outside) serveHTTPS(ctx context.Context, peer mesh.Peer, handler http.Handler, hosts ...string) (address string, err error) {
	listener, err := s.listenTLS(peer, hosts...)
	if err != nil {
		return "", err
	}
	s.serve(listener, handler)
	for _, host := range hosts {
		if err := s.Forward(ctx, host, "443", listener.Addr().String()); err != nil {
			return "", err
		}
	}
	return listener.Addr().String(), nil
}

// listenTLS listens on loopback with the certificate of a peer for hosts and 127.0.0.1.
func (s *Outside) listenTLS(peer mesh.Peer, hosts ...string) (net.Listener, error) {
	// Some peers serve several hosts, each with a certificate of its own.
	dir := filepath.Join(s.Dir, "served", strings.Join(append([]string{string(peer)}, hosts[:min(1, len(hosts))]...), "-"))
	if err := s.Authority.Issue(dir, peer, append(slices.Clone(hosts), "127.0.0.1")...); err != nil {
		return nil, err
	}
	files := IdentityFiles(dir)
	certificate, err := tls.LoadX509KeyPair(files["tls.crt"], files["tls.key"])
	if err != nil {
		return nil, err
	}
	return tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
}

// serve serves HTTP until Close, which waits for the requests in progress.
func (s *Outside) serve(listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		err := server.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		<-served
		return err
	})
}

// drainTimeout bounds the requests that are in progress at Close, such as watches.
const drainTimeout = 10 * time.Second

// roots returns the region's authority.
func (s *Outside) roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Authority.CertificatePEM())
	return roots
}

// HTTPClient returns a client that trusts the region's authority and connects to an address for all names.
func (s *Outside) HTTPClient(address string) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots(), MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}}
	s.onClose(func() error {
		transport.CloseIdleConnections()
		return nil
	})
	return &http.Client{Transport: transport, Timeout: time.Minute}
}
