package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
)

const (
	// lifetime is how long the gateway begins connections in a tunnel: as long as a token of Entra ID is valid at least.
	lifetime = time.Hour
	// drain is how long connections in a tunnel continue after that. A session lasts at most 15 minutes.
	drain = 16 * time.Minute
	// handshakeTimeout limits the handshake of a WebSocket.
	handshakeTimeout = 10 * time.Second
)

// Options are the options of a Server.
type Options struct {
	// Agents has the ID of the application as which the agent of each management cluster authenticates, by the name of the management cluster.
	Agents map[string]string
	// Authenticator authenticates agents.
	Authenticator authn.Authenticator
	// Replicas is the number of processes of the gateway, which agents have to reach. 0 means 1.
	Replicas int
	// Lifetime and Drain are how long the gateway begins connections in a tunnel, and how long they continue afterwards. 0 means the constants.
	Lifetime, Drain time.Duration
	// Clock is that of Lifetime and Drain; nil means the real one.
	Clock   clock.WithDelayedExecution
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Server accepts the tunnels of agents, and connects to API servers through them. It is safe for concurrent use.
type Server struct {
	Options
	replica   string
	failures  *ratelimit.Buckets
	connected *prometheus.GaugeVec
	// connections are the running copies of connections, and the tunnels.
	connections sync.WaitGroup
	// ctx ends when the Server is closed.
	ctx   context.Context
	close context.CancelFunc

	mu sync.Mutex
	// tunnels are those in which connections may begin, by the name of the management cluster, newest first.
	tunnels map[string][]*tunnel
}

// tunnel is the connection of an agent.
type tunnel struct {
	cluster string
	conn    *Conn
	client  *http2.ClientConn
}

// NewServer returns a Server. It registers its metric.
func NewServer(options Options) *Server {
	options.Replicas, options.Lifetime, options.Drain = cmp.Or(options.Replicas, 1), cmp.Or(options.Lifetime, lifetime), cmp.Or(options.Drain, drain)
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	s := &Server{Options: options, replica: rand.Text(), failures: ratelimit.New(ratelimit.Limit{Size: 60, PerSecond: 1}, time.Now), tunnels: map[string][]*tunnel{},
		connected: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gateway_access_tunnels",
			Help: "Tunnels in which this replica begins connections to API servers, by management cluster."}, []string{"shard"})}
	s.ctx, s.close = context.WithCancel(context.Background())
	for cluster := range options.Agents {
		s.connected.WithLabelValues(cluster)
	}
	options.Metrics.MustRegister(s.connected)
	return s
}

// Close closes all tunnels and waits until their connections have ended.
func (s *Server) Close() {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.connections.Wait()
}

// begin counts something for which Close waits until done is called. It returns false if the Server is closed.
func (s *Server) begin() (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, false
	}
	s.connections.Add(1)
	return s.connections.Done, true
}

// ServeHTTP implements http.Handler. It accepts the tunnel of an agent, and returns when the tunnel has ended.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, err := s.accept(w, r)
	if err != nil {
		s.Log.InfoContext(r.Context(), "a tunnel was refused", logkey.Address, r.RemoteAddr, logkey.Error, err)
		return
	}
	s.serve(t)
}

// accept upgrades the connection of an agent. If it returns an error, the agent has a response.
func (s *Server) accept(w http.ResponseWriter, r *http.Request) (*tunnel, error) {
	cluster, err := s.authenticate(r)
	if err != nil {
		process.CloseUnread(w, r)
		e := apierror.As(err)
		if challenge := authn.Challenge(err); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
		apierror.SetRetryAfter(w.Header(), e.RetryAfter)
		http.Error(w, e.Message, e.Kind.HTTPStatus())
		return nil, err
	}
	upgrader := websocket.Upgrader{HandshakeTimeout: handshakeTimeout, Subprotocols: []string{Protocol}}
	if !slices.Contains(websocket.Subprotocols(r), Protocol) {
		err := fmt.Errorf("the agent does not have the protocol %s", Protocol)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return nil, err
	}
	socket, err := upgrader.Upgrade(w, r, http.Header{ReplicaHeader: {s.replica}, ReplicasHeader: {strconv.Itoa(s.Replicas)},
		LifetimeHeader: {strconv.Itoa(int(s.Lifetime / time.Second))}})
	if err != nil {
		return nil, err
	}
	conn := NewConn(socket)
	client, err := newClient(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &tunnel{cluster: cluster, conn: conn, client: client}, nil
}

// newClient returns the client of HTTP/2 in a connection.
func newClient(conn net.Conn) (*http2.ClientConn, error) {
	settings := &http.Transport{HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: StreamBuffer, MaxReceiveBufferPerConnection: ConnectionBuffer, MaxReadFrameSize: MaxFrame,
		SendPingTimeout: PingAfter, PingTimeout: PingTimeout}}
	transport, err := http2.ConfigureTransports(settings)
	if err != nil {
		return nil, err
	}
	return transport.NewClientConn(conn)
}

// authenticate returns the management cluster of an agent.
func (s *Server) authenticate(r *http.Request) (cluster string, err error) {
	caller, err := s.Authenticator.Authenticate(r.Context(), r)
	if err != nil {
		return "", authn.LimitFailure(s.failures, r.RemoteAddr, err)
	}
	cluster = strings.TrimPrefix(r.URL.Path, Path)
	if application := s.Agents[cluster]; application == "" || !strings.EqualFold(application, caller.AppID) {
		return "", apierror.New(apierror.PermissionDenied, "The application is not the agent of the management cluster in the path.")
	}
	return cluster, nil
}

// serve keeps a tunnel until its connection or the Server is closed.
func (s *Server) serve(t *tunnel) {
	defer func() { _ = t.client.Close() }()
	done, ok := s.begin()
	if !ok {
		return
	}
	defer done()
	retire := s.Clock.NewTimer(s.Lifetime)
	defer retire.Stop()
	s.mu.Lock()
	s.set(t.cluster, slices.Insert(s.tunnels[t.cluster], 0, t))
	s.mu.Unlock()
	s.Log.Info("a tunnel is connected", logkey.Shard, t.cluster)
	select {
	case <-t.conn.Closed():
	case <-s.ctx.Done():
	case <-retire.C():
		s.remove(t)
		// The agent has another tunnel already.
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		end := s.Clock.AfterFunc(s.Drain, cancel)
		defer end.Stop()
		_ = t.client.Shutdown(ctx) // an error means that connections are left, which end now
		return
	}
	s.remove(t)
	s.Log.Info("a tunnel has ended", logkey.Shard, t.cluster)
}

// remove makes the Server begin no connection in a tunnel any more.
func (s *Server) remove(t *tunnel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(t.cluster, slices.DeleteFunc(slices.Clone(s.tunnels[t.cluster]), func(other *tunnel) bool { return other == t }))
}

// set replaces the tunnels of a management cluster.
func (s *Server) set(cluster string, tunnels []*tunnel) {
	s.tunnels[cluster] = tunnels
	s.connected.WithLabelValues(cluster).Set(float64(len(tunnels)))
}
