package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// Limits bound what clients can occupy.
type Limits struct {
	// TunnelsPerClient and Tunnels are the numbers of tunnels of one client and of all clients.
	TunnelsPerClient, Tunnels int
	// Lifetime and Idle bound the time of a tunnel, and the time without a byte in either direction.
	Lifetime, Idle time.Duration
	// Bytes is the number of bytes of a tunnel in both directions.
	Bytes int64
}

// DefaultLimits suffice for the documents of an issuer, which have some kilobytes. An API server keeps up to two unused connections to
// an issuer for 90 s.
var DefaultLimits = Limits{TunnelsPerClient: 16, Tunnels: 2048, Lifetime: 5 * time.Minute, Idle: time.Minute, Bytes: 16 << 20}

const (
	// connectTimeout bounds resolving a name and connecting to its addresses, and dialTimeout connecting to one of them.
	connectTimeout = 10 * time.Second
	dialTimeout    = 3 * time.Second
)

// Attempt is one CONNECT.
type Attempt struct {
	// Client is the control plane or the address of the client, and Target is host:port.
	Client, Target string
	// Outcome is one of the constants; Reason explains it, and is empty if it is OutcomeAllowed.
	Outcome, Reason string
}

// Refused reports whether the policy did not permit the target.
func (a Attempt) Refused() bool {
	return a.Outcome == OutcomeInvalid || a.Outcome == OutcomePort || a.Outcome == OutcomeAddress
}

// Options configures a Server.
type Options struct {
	Policy Policy
	Limits Limits
	// OnAttempt is called after each CONNECT was decided; nil for none. It must not block.
	OnAttempt func(Attempt)
	// Dial connects to an address that the policy permits; a net.Dialer if it is nil.
	Dial    func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Server is the proxy, an http.Handler. It is safe for concurrent use.
type Server struct {
	options Options
	metrics *metrics
	tunnels *relay.Tunnels

	mu      sync.Mutex
	clients map[string]int // tunnels by client, including those that are being connected
	total   int
	open    sync.WaitGroup
	// closing ends with Close, which calls stop.
	closing context.Context
	stop    context.CancelFunc
}

// NewServer returns a server. The caller must call Close.
func NewServer(options Options) *Server {
	if options.Dial == nil {
		dialer := &net.Dialer{Timeout: dialTimeout}
		options.Dial = func(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address.String())
		}
	}
	if options.OnAttempt == nil {
		options.OnAttempt = func(Attempt) {}
	}
	s := &Server{options: options, clients: map[string]int{},
		tunnels: relay.NewTunnels(relay.Limits{Idle: options.Limits.Idle, Lifetime: options.Limits.Lifetime, Bytes: options.Limits.Bytes})}
	s.closing, s.stop = context.WithCancel(context.Background())
	s.metrics = newMetrics(options.Metrics, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.total)
	})
	return s
}

// HTTPServer returns an HTTP/1.1 server of the proxy. Without a TLS configuration, clients are identified by their addresses.
func (s *Server) HTTPServer(config *tls.Config) *http.Server {
	server := process.NewHTTPServer(process.Streams, s, s.options.Log)
	// A tunnel takes over its connection, which HTTP/2 does not allow.
	server.TLSConfig, server.TLSNextProto = config, map[string]func(*http.Server, *tls.Conn, http.Handler){}
	return server
}

// Close closes all tunnels and waits for their ends. No CONNECT is accepted afterwards.
func (s *Server) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.open.Wait()
}

// acquire counts a tunnel of a client. The caller must call release if it returns true.
func (s *Server) acquire(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return false
	}
	if s.total >= s.options.Limits.Tunnels || s.clients[client] >= s.options.Limits.TunnelsPerClient {
		return false
	}
	s.total++
	s.clients[client]++
	s.open.Add(1)
	return true
}

func (s *Server) release(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.clients[client]--; s.clients[client] == 0 {
		delete(s.clients, client)
	}
	s.open.Done()
}

// ServeHTTP answers a CONNECT with 200 and the tunnel, with 403 if the policy does not permit the target, with 429 if there are too
// many tunnels, and with 502 if the target cannot be reached.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := clientOf(r)
	if r.Method != http.MethodConnect {
		w.Header().Set("Allow", http.MethodConnect)
		http.Error(w, "only CONNECT is supported", http.StatusMethodNotAllowed)
		return
	}
	if !s.acquire(client) {
		s.decided(client, r.Host, refuse(OutcomeBusy, "there are too many tunnels"))
		http.Error(w, "there are too many tunnels", http.StatusTooManyRequests)
		return
	}
	defer s.release(client)
	upstream, err := s.connect(r.Context(), r.Host)
	s.decided(client, r.Host, err)
	if err != nil {
		status := http.StatusBadGateway
		if (Attempt{Outcome: outcomeOf(err)}).Refused() {
			status = http.StatusForbidden
		}
		http.Error(w, err.Error(), status)
		return
	}
	defer func() { _ = upstream.Close() }()
	downstream, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.options.Log.Error("taking over the connection of a tunnel failed", logkey.Client, client, logkey.Error, err)
		return
	}
	defer func() { _ = downstream.Close() }()
	s.tunnel(client, r.Host, &bufferedConn{downstream, buffered.Reader}, upstream)
}

// connect connects to the first address of the target that accepts a connection.
func (s *Server) connect(ctx context.Context, target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	addresses, err := s.options.Policy.resolve(ctx, target)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, address := range addresses {
		connection, err := s.options.Dial(ctx, address)
		if err == nil {
			return connection, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// decided logs, counts and reports one CONNECT.
func (s *Server) decided(client, target string, err error) {
	attempt := Attempt{Client: client, Target: clip(target), Outcome: outcomeOf(err)}
	level := slog.LevelDebug
	attributes := []any{logkey.ControlPlane, client, logkey.Target, attempt.Target, logkey.Outcome, attempt.Outcome}
	if err != nil {
		attempt.Reason = err.Error()
		attributes = append(attributes, logkey.Reason, clip(attempt.Reason))
		level = slog.LevelInfo
	}
	s.metrics.connects.WithLabelValues(attempt.Outcome).Inc()
	s.options.Log.Log(context.Background(), level, "egress connection decided", attributes...)
	s.options.OnAttempt(attempt)
}

// clip bounds a text of a client in a log record.
func clip(text string) string {
	const most = maxHost + len(":65535")
	if len(text) > most {
		return text[:most]
	}
	return text
}

// clientOf returns the control plane in the client's certificate, which TLS has verified, or the client's address without TLS.
func clientOf(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// bufferedConn is a connection of which the beginning was already read.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.reader.Read(p) }

// CloseWrite ends the stream to the client.
func (b *bufferedConn) CloseWrite() error {
	if half, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return b.Close()
}
