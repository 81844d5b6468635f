// Package agent is the side of a tunnel in a management cluster. An Agent connects to each replica of the session gateway, and connects the gateway
// to hosted API servers. See package tunnel for the protocol. Main is the program gateway-tunnel, which accepts no connections but those for health
// and metrics.
package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// handshakeTimeout limits a handshake, with the request for the token.
	handshakeTimeout = 15 * time.Second
	// minPause and maxPause limit the time from one attempt to the next one. It grows while attempts fail.
	minPause = time.Second
	maxPause = 30 * time.Second
	// maxReplicas is the number of replicas that an agent connects to.
	maxReplicas = 20
	// maxReason is the maximum size in bytes of the reason of a refused handshake.
	maxReason = 1 << 10
)

// Options are the options of an Agent.
type Options struct {
	// Gateway is the URL of the gateway, https://HOST[:PORT].
	Gateway *url.URL
	// ManagementCluster is the name of the management cluster.
	ManagementCluster string
	// Token returns the access token of the agent.
	Token func(ctx context.Context) (string, error)
	// TLS returns the settings that verify the gateway.
	TLS func() *tls.Config
	// Proxy returns the proxy on the way to the gateway; nil means none.
	Proxy func(*http.Request) (*url.URL, error)
	// Resolver finds the API servers of clusters.
	Resolver Resolver
	// Granter issues tokens for the API server of the management cluster; nil means that there are no sessions with it.
	Granter grant.Granter
	// Clock is that of the lifetimes of tunnels; nil means the real one.
	Clock   clock.WithDelayedExecution
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Agent keeps tunnels to all replicas of the gateway.
type Agent struct {
	Options
	connected   prometheus.Gauge
	connections *prometheus.CounterVec
	// grants serves requests for tokens; nil without a Granter.
	grants http.Handler
	// changed is signaled when a tunnel has ended or must be replaced.
	changed chan struct{}

	mu sync.Mutex
	// replicas are those to which there is a tunnel that needs no replacement. wanted is their number that the gateway has stated last.
	replicas map[string]bool
	wanted   int
}

// The outcomes of connections in the metric.
const (
	outcomeConnected   = "connected"
	outcomeUnknown     = "unknown_cluster"
	outcomeUnreachable = "unreachable"
)

// New returns an Agent. It registers its metrics.
func New(options Options) *Agent {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	a := &Agent{Options: options, changed: make(chan struct{}, 1), replicas: map[string]bool{}, wanted: 1,
		connected: prometheus.NewGauge(prometheus.GaugeOpts{Name: "gateway_tunnel_connected_replicas", Help: "Replicas of the session gateway to which there is a tunnel."}),
		connections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_tunnel_connections_total",
			Help: "Connections that the session gateway asked for, by outcome: connected, unknown_cluster or unreachable."}, []string{"outcome"})}
	grants := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_tunnel_grants_total",
		Help: "Tokens for the API server of the management cluster that the session gateway asked for, by outcome: issued, refused or failed."}, []string{"outcome"})
	for _, outcome := range []string{outcomeConnected, outcomeUnknown, outcomeUnreachable} {
		a.connections.WithLabelValues(outcome)
	}
	if options.Granter != nil {
		a.grants = grant.NewHandler(options.Granter, grant.ManagementCluster(options.ManagementCluster), options.Log, grants)
	}
	options.Metrics.MustRegister(a.connected, a.connections, grants)
	return a
}

// Ready returns an error without a tunnel.
func (a *Agent) Ready(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.replicas) == 0 {
		return errors.New("there is no tunnel to the session gateway")
	}
	return nil
}

// Run connects to the gateway until ctx ends. Then it closes all tunnels with their connections.
func (a *Agent) Run(ctx context.Context) {
	var tunnels sync.WaitGroup
	defer tunnels.Wait()
	pauses := backoff.New(minPause, maxPause)
	var next time.Time
	for ctx.Err() == nil {
		if a.complete() {
			select {
			case <-ctx.Done():
			case <-a.changed:
			}
			continue
		}
		if backoff.Sleep(ctx, time.Until(next)) != nil {
			return
		}
		next = time.Now().Add(pauses.Next())
		t, err := a.connect(ctx)
		if err == nil && a.add(t) {
			pauses.Reset()
			tunnels.Go(func() { a.serve(ctx, t) })
			continue
		}
		if err == nil {
			// The load balancer has chosen a replica that is connected already.
			_ = t.conn.Close()
		} else if ctx.Err() == nil {
			a.Log.WarnContext(ctx, "connecting to the session gateway failed; retrying", logkey.Error, err)
		}
	}
}

// connection is a tunnel to a replica of the gateway.
type connection struct {
	conn     *tunnel.Conn
	replica  string
	replicas int
	lifetime time.Duration
}

// connect opens a tunnel.
func (a *Agent) connect(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	token, err := a.Token(ctx)
	if err != nil {
		return nil, fmt.Errorf("requesting a token: %w", err)
	}
	address := *a.Gateway
	address.Scheme, address.Path = "wss", tunnel.Path+a.ManagementCluster
	dialer := websocket.Dialer{TLSClientConfig: a.TLS(), Proxy: a.Proxy, Subprotocols: []string{tunnel.Protocol}}
	socket, response, err := dialer.DialContext(ctx, address.String(), http.Header{"Authorization": {"Bearer " + token}})
	if err != nil {
		if response != nil {
			reason, _ := io.ReadAll(io.LimitReader(response.Body, maxReason)) // the status is known
			err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(reason)))
		}
		return nil, err
	}
	t := &connection{conn: tunnel.NewConn(socket), replica: response.Header.Get(tunnel.ReplicaHeader)}
	t.replicas, err = strconv.Atoi(response.Header.Get(tunnel.ReplicasHeader))
	seconds, lifetimeErr := strconv.Atoi(response.Header.Get(tunnel.LifetimeHeader))
	t.lifetime = time.Duration(seconds) * time.Second
	if err != nil || lifetimeErr != nil || t.replica == "" || t.replicas < 1 || seconds < 1 || socket.Subprotocol() != tunnel.Protocol {
		return nil, errors.Join(fmt.Errorf("the response to the handshake is not that of a session gateway: %v", response.Header), t.conn.Close())
	}
	return t, nil
}

// complete reports whether there is a tunnel to each replica.
func (a *Agent) complete() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.replicas) >= a.wanted
}

// add counts a tunnel. It returns false if its replica has one.
func (a *Agent) add(t *connection) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted = min(t.replicas, maxReplicas)
	if a.replicas[t.replica] {
		return false
	}
	a.replicas[t.replica] = true
	a.connected.Set(float64(len(a.replicas)))
	return true
}

// serve serves a tunnel until it ends. Shortly before its lifetime ends, another tunnel to the replica replaces it.
func (a *Agent) serve(ctx context.Context, t *connection) {
	a.Log.InfoContext(ctx, "a tunnel is connected", logkey.Replica, t.replica)
	replace := sync.OnceFunc(func() {
		a.mu.Lock()
		delete(a.replicas, t.replica)
		a.connected.Set(float64(len(a.replicas)))
		a.mu.Unlock()
		select {
		case a.changed <- struct{}{}:
		default: // a signal waits already
		}
	})
	defer replace()
	timer := a.Clock.AfterFunc(t.lifetime*9/10, replace)
	defer timer.Stop()
	stop := context.AfterFunc(ctx, func() { _ = t.conn.Close() })
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http2.Server{MaxConcurrentStreams: tunnel.MaxConnections, MaxReadFrameSize: tunnel.MaxFrame, MaxUploadBufferPerStream: tunnel.StreamBuffer,
		MaxUploadBufferPerConnection: tunnel.ConnectionBuffer, ReadIdleTimeout: tunnel.PingAfter, PingTimeout: tunnel.PingTimeout}
	server.ServeConn(t.conn, &http2.ServeConnOpts{Context: ctx, Handler: http.HandlerFunc(a.forward),
		BaseConfig: &http.Server{ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug)}})
	_ = t.conn.Close()
	a.Log.InfoContext(ctx, "a tunnel has ended", logkey.Replica, t.replica)
}
