// Package stubkubelet serves the kubelet API of simulated nodes: logs, exec, attach and port-forward of pods that no container runs for.
// The local HyperShift runtime serves the nodes of all its hosted clusters with one Server, and tests of other services serve theirs.
//
// A hosted API server connects with its kubelet client certificate. The Server verifies it with the authority of that cluster, which selects
// the cluster: a request never reaches the nodes and pods of another one. For each cluster the Server watches nodes and pods. It reports the pods
// of its nodes as Running, and completes their deletion, as kubelets do. Commands are built in and work on files in memory. The Server never runs
// a program and never reads a file of the machine. All streams, bytes and times are bounded, and everything ends with the pod, its node, its
// cluster or the Server.
package stubkubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ClientName is the common name of the certificates with which API servers connect to kubelets, and ClientGroup their organization. They are
// HyperShift's. The Server rejects every other certificate of a cluster's authority, for example the administrator's.
const (
	ClientName  = "system:kube-apiserver"
	ClientGroup = "kubernetes"
)

// Address is the address on which a Server listens, and which its serving certificate must name. AddressType is the type of the node address
// that API servers must prefer, because the other addresses of simulated nodes do not exist.
const (
	Address     = "127.0.0.1"
	AddressType = corev1.NodeExternalIP
)

// Bounds of a Server.
const (
	// MaxStreamsOfNode, MaxStreamsOfCluster and MaxStreams bound the requests in progress; then 429.
	MaxStreamsOfNode, MaxStreamsOfCluster, MaxStreams = 16, 64, 256
	// MaxStreamBytes bounds the bytes of a stream in each direction.
	MaxStreamBytes = 64 << 20
	// MaxFileBytes bounds the files of a container, and maxTotalFileBytes those of all containers. Each file counts fileOverhead in addition.
	MaxFileBytes, maxTotalFileBytes, fileOverhead = 8 << 20, 128 << 20, 512
	// DefaultIdleTimeout ends a stream without data.
	DefaultIdleTimeout = 10 * time.Minute

	maxConnections        = 2 * MaxStreams
	headerTimeout         = 10 * time.Second
	streamCreationTimeout = 30 * time.Second
	// startTimeout bounds the wait until a pod is reported as Running.
	startTimeout = 10 * time.Second
	// endGrace is the time to send the end of a stream. Then its connection is closed.
	endGrace = 2 * time.Second
)

// Options configure a Server.
type Options struct {
	// Certificate is the serving certificate, for Address. API servers verify it with --kubelet-certificate-authority.
	Certificate tls.Certificate
	// IdleTimeout ends a stream without data; DefaultIdleTimeout if it is zero.
	IdleTimeout time.Duration
	// Clock times IdleTimeout and the ends of streams; the clock of the machine if it is nil.
	Clock clock.WithDelayedExecution
	Log   *slog.Logger
}

// Server serves the kubelet API of the nodes of many clusters. It is safe for concurrent use.
type Server struct {
	options Options
	port    int32
	http    *http.Server
	files   *budget
	// running waits for the listener, the clusters and the requests.
	running sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster
	streams  int
	closing  bool
}

// Listen returns a Server without clusters that listens on a free port of Address. The caller must call Close.
func Listen(options Options) (*Server, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(Address, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening for kubelet requests: %w", err)
	}
	if options.IdleTimeout == 0 {
		options.IdleTimeout = DefaultIdleTimeout
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	s := &Server{options: options, port: int32(listener.Addr().(*net.TCPAddr).Port), files: &budget{limit: maxTotalFileBytes}, clusters: map[string]*cluster{}}
	s.http = &http.Server{
		Handler: s.routes(),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{options.Certificate},
			// The certificate selects the cluster and then is verified with the authority of that cluster alone.
			ClientAuth:             tls.RequireAnyClientCert,
			VerifyConnection:       func(state tls.ConnectionState) error { _, err := s.authenticate(&state); return err },
			SessionTicketsDisabled: true,
			MinVersion:             tls.VersionTLS12,
		},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // upgrades need HTTP/1.1
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       withConnection,
		ErrorLog:          slog.NewLogLogger(options.Log.Handler(), slog.LevelDebug),
	}
	s.running.Go(func() {
		err := s.http.ServeTLS(&trackingListener{Listener: listener}, "", "")
		if !errors.Is(err, http.ErrServerClosed) {
			options.Log.Error("serving kubelet requests failed", logkey.Error, err)
		}
	})
	return s, nil
}

// Port returns the port on which the Server listens.
func (s *Server) Port() int32 { return s.port }

// Announce adds the address and the port of the Server to the status of a node.
func (s *Server) Announce(status *corev1.NodeStatus) {
	status.DaemonEndpoints.KubeletEndpoint.Port = s.port
	for i := range status.Addresses {
		if status.Addresses[i].Type == AddressType {
			status.Addresses[i].Address = Address
			return
		}
	}
	status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: AddressType, Address: Address})
}

// Serve serves the nodes of a cluster that have been announced. config is the configuration of an administrator of the cluster, and authority
// the PEM certificate that signs the kubelet client certificate of its API server. It replaces an earlier registration of the name.
func (s *Server) Serve(name string, config *rest.Config, authority []byte) error {
	block, _ := pem.Decode(authority)
	if block == nil || block.Type != "CERTIFICATE" {
		return fmt.Errorf("the authority of the kubelet clients of %s: no certificate in PEM", name)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("the authority of the kubelet clients of %s: %w", name, err)
	}
	if len(certificate.SubjectKeyId) == 0 {
		return fmt.Errorf("the authority of the kubelet clients of %s: the certificate has no subject key identifier", name)
	}
	limited := rest.CopyConfig(config)
	limited.QPS, limited.Burst = -1, 0 // the API server has fair limits
	limited.UserAgent = "kubelet/hcpmesh"
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return fmt.Errorf("connecting to cluster %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return errors.New("the kubelet server is closing")
	}
	for other, existing := range s.clusters {
		if other != name && existing.signs(certificate.SubjectKeyId) {
			return fmt.Errorf("the authority of the kubelet clients of %s is that of cluster %s", name, other)
		}
	}
	if previous := s.clusters[name]; previous != nil {
		previous.stop()
	}
	c := newCluster(s, name, certificate, client)
	s.clusters[name] = c
	s.running.Go(c.run)
	return nil
}

// Forget ends all streams of a cluster, deletes its files, and rejects its further requests.
func (s *Server) Forget(name string) {
	s.mu.Lock()
	c := s.clusters[name]
	delete(s.clusters, name)
	s.mu.Unlock()
	if c != nil {
		c.stop()
	}
}

// Close stops listening, ends all streams, and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closing = true
	for _, c := range s.clusters {
		c.stop()
	}
	clear(s.clusters)
	s.mu.Unlock()
	// Requests whose pods ended send their status first, so connections that are still open are closed afterwards.
	ctx, cancel := context.WithTimeout(context.Background(), 2*endGrace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	s.running.Wait()
}

// authenticate returns the cluster whose API server has made a connection.
func (s *Server) authenticate(state *tls.ConnectionState) (*cluster, error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return nil, errors.New("a client certificate is required")
	}
	leaf := state.PeerCertificates[0]
	var c *cluster
	s.mu.Lock()
	for _, candidate := range s.clusters {
		if candidate.signs(leaf.AuthorityKeyId) {
			c = candidate
		}
	}
	s.mu.Unlock()
	if c == nil {
		return nil, errors.New("the client certificate is of no cluster that is served here")
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.authority)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return nil, fmt.Errorf("the client certificate: %w", err)
	}
	if leaf.Subject.CommonName != ClientName {
		return nil, fmt.Errorf("the client certificate is for %q, and only %s may use kubelets", leaf.Subject.CommonName, ClientName)
	}
	return c, nil
}

// begin registers a request, or returns why it is refused.
func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return &refusal{http.StatusServiceUnavailable, "the simulated kubelet is closing"}
	case s.streams >= MaxStreams:
		return &refusal{http.StatusTooManyRequests, fmt.Sprintf("the simulated kubelets have %d streams already, which is their limit", MaxStreams)}
	}
	s.streams++
	s.running.Add(1)
	return nil
}

func (s *Server) end() {
	s.mu.Lock()
	s.streams--
	s.mu.Unlock()
	s.running.Done()
}

// trackingListener accepts connections whose end is noticed. It closes new ones at once while maxConnections are open: clients without a certificate must not
// fill the queue of those that wait.
type trackingListener struct {
	net.Listener
	open atomic.Int64
}

func (l *trackingListener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: accepted}
		c.ended, c.end = context.WithCancel(context.Background())
		context.AfterFunc(c.ended, func() { l.open.Add(-1) })
		if l.open.Add(1) <= maxConnections {
			return c, nil
		}
		_ = c.Close()
	}
}

// connection is a connection with a context that ends with it. Handlers of upgraded requests need it, because the context of such a request
// does not end when the client is gone.
type connection struct {
	net.Conn
	ended context.Context
	end   context.CancelFunc
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end()
	}
	return n, err
}

func (c *connection) Close() error {
	c.end()
	return c.Conn.Close()
}

type connectionKey struct{}

func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}
