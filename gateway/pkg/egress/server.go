package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
	"github.com/hcpmesh/hcpmesh/internal/relay"
)

const (
	// handshakeTimeout is the default of Limits.Handshake.
	handshakeTimeout = 5 * time.Second
	// lingerTimeout bounds the time in which a refused client can read why.
	lingerTimeout = time.Second
	// acceptPause is the pause after a failure to accept, for example when there are no descriptors.
	acceptPause = 100 * time.Millisecond
)

// errStopped is the cause of the end of connections that are still open at the end of the drain.
var errStopped = errors.New("the gateway stops")

// Limits bound what clients can occupy.
type Limits struct {
	// Connections is the number of connections of all links, with those that have not named a host yet.
	Connections int
	// Handshake is the time in which a client sends the PROXY header and names the host; 0 means 5 s.
	Handshake time.Duration
	// Idle is the time without a byte in either direction.
	Idle time.Duration
	// Drain is how long open connections may continue after the end of the context of Run.
	Drain time.Duration
}

// refusalRecords limits the access records about refused connections of one link. All are counted in metrics.
func refusalRecords() ratelimit.Limit { return ratelimit.Limit{Size: 100, PerSecond: 10} }

// ServerOptions configures a Server.
type ServerOptions struct {
	Links  *Registry
	Limits Limits
	// Dialer connects to hosts. Tests have a network of their own.
	Dialer publicaddress.Dialer
	// Clock is that of Limits.Drain and of the rate of access records; nil means the real one.
	Clock   clock.Clock
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Server serves connections. It is safe for concurrent use.
type Server struct {
	options ServerOptions
	metrics *metrics
	tunnels *relay.Tunnels
	records *ratelimit.Buckets

	mu          sync.Mutex
	connections int
	open        sync.WaitGroup
}

// NewServer returns a server. It registers its metrics.
func NewServer(options ServerOptions) *Server {
	if options.Limits.Handshake == 0 {
		options.Limits.Handshake = handshakeTimeout
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	// One descriptor is for the client, and one for the host.
	if permitted := process.ConnectionLimit(options.Limits.Connections, 2); permitted < options.Limits.Connections {
		options.Log.Warn("the process may open few files; fewer connections are accepted", logkey.Limit, permitted)
		options.Limits.Connections = permitted
	}
	s := &Server{options: options, tunnels: relay.NewTunnels(relay.Limits{Idle: options.Limits.Idle}), records: ratelimit.New(refusalRecords(), options.Clock.Now)}
	s.metrics = newMetrics(options.Metrics, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.connections)
	})
	return s
}

// Run accepts connections until ctx ends. Then it closes the listeners, waits for open connections for Limits.Drain, and closes the others. It
// returns the first error of a listener.
func (s *Server) Run(ctx context.Context, listeners map[Protocol]net.Listener) error {
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	accepting, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var accepts sync.WaitGroup
	for protocol, listener := range listeners {
		accepts.Go(func() {
			if err := s.accept(accepting, serving, protocol, listener); err != nil {
				fail(err)
			}
		})
	}
	accepts.Wait()
	drained := make(chan struct{})
	go func() { defer close(drained); s.open.Wait() }()
	timer := s.options.Clock.NewTimer(s.options.Limits.Drain)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C():
		stop(errStopped)
		<-drained
	}
	if ctx.Err() == nil {
		return context.Cause(accepting)
	}
	return nil
}

// accept accepts connections of one listener until ctx ends.
func (s *Server) accept(ctx, serving context.Context, protocol Protocol, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		connection, err := listener.Accept()
		var failed net.Error
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = connection.Close()
			}
			return nil
		case errors.As(err, &failed) && !errors.Is(err, net.ErrClosed):
			s.options.Log.WarnContext(ctx, "accepting a connection failed; retrying", logkey.Protocol, protocol, logkey.Error, err)
			if backoff.Sleep(ctx, acceptPause) != nil {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		if !s.acquire() {
			s.metrics.connections.WithLabelValues(string(protocol), string(Busy)).Inc()
			_ = connection.Close()
			continue
		}
		go func() {
			defer s.release()
			s.serve(serving, protocol, connection)
		}()
	}
}

// acquire counts a connection. The caller must call release if it returns true.
func (s *Server) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connections >= s.options.Limits.Connections {
		return false
	}
	s.connections++
	s.open.Add(1)
	return true
}

func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections--
	s.open.Done()
}
