package session

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// DialTimeout limits each way to an API server.
const DialTimeout = 10 * time.Second

// DialTarget is the API server of a cluster.
type DialTarget struct {
	// Address is host:port of its URL; empty if only the tunnel leads to it.
	Address string
	// ManagementCluster is the management cluster that hosts the cluster; empty if no tunnel leads to it. ClusterID identifies the cluster there; see package
	// tunnel.
	ManagementCluster, ClusterID string
	// Restricted is set if the API server does not accept connections from everywhere: it is private, or has authorized CIDRs.
	Restricted bool
}

// Tunnels connects through management clusters. *tunnel.Server implements it.
type Tunnels interface {
	Dial(ctx context.Context, managementCluster, clusterID string) (net.Conn, error)
}

// Dialer connects to API servers. It is safe for concurrent use.
type Dialer struct {
	directly func(ctx context.Context, network, address string) (net.Conn, error)
	tunnels  Tunnels

	connections *prometheus.CounterVec
}

// The ways to API servers.
const (
	direct   = "direct"
	tunneled = "tunnel"
)

// NewDialer returns a Dialer. directly connects to an address; nil means a connection without a proxy. tunnels is nil if management clusters have no
// tunnels. NewDialer registers the metric of the Dialer.
func NewDialer(directly func(ctx context.Context, network, address string) (net.Conn, error), tunnels Tunnels, metrics prometheus.Registerer) *Dialer {
	if directly == nil {
		directly = new(net.Dialer).DialContext
	}
	d := &Dialer{directly: directly, tunnels: tunnels, connections: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_access_connections_total",
		Help: "Connections to API servers by way, direct or tunnel, and outcome. A connection that fails on the first way is tried on the other one."}, []string{"way", "outcome"})}
	for _, way := range []string{direct, tunneled} {
		for _, outcome := range []string{"succeeded", "failed"} {
			d.connections.WithLabelValues(way, outcome)
		}
	}
	metrics.MustRegister(d.connections)
	return d
}

// Dial connects to an API server. The first way to a restricted one is the tunnel, and to another one the direct connection. If the first way fails,
// Dial tries the other one: the list of CIDRs may have the addresses of the gateway, and a load balancer can be broken. The chain of the error for a
// restricted one contains an *apierror.Error for engineers.
func (d *Dialer) Dial(ctx context.Context, target DialTarget) (net.Conn, error) {
	ways := []string{direct, tunneled}
	switch {
	case target.Address == "":
		ways = []string{tunneled}
	case target.ManagementCluster == "":
		ways = []string{direct}
	case target.Restricted:
		ways = []string{tunneled, direct}
	}
	var failures []error
	for _, way := range ways {
		if way == tunneled && d.tunnels == nil {
			continue
		}
		conn, err := d.dial(ctx, way, target)
		if err == nil {
			d.connections.WithLabelValues(way, "succeeded").Inc()
			return conn, nil
		}
		d.connections.WithLabelValues(way, "failed").Inc()
		if failures = append(failures, err); ctx.Err() != nil {
			break
		}
	}
	failure := errors.Join(failures...)
	switch {
	case target.Address == "":
		return nil, apierror.New(apierror.Unavailable, "The management cluster %s has no working tunnel to this gateway.", target.ManagementCluster).WithRetryAfter(time.Second).WithCause(failure)
	case target.Restricted:
		return nil, apierror.New(apierror.Unavailable, "The API server accepts connections only from its customer's addresses, and its management cluster %s has no working tunnel to this gateway.",
			target.ManagementCluster).WithRetryAfter(time.Second).WithCause(failure)
	}
	return nil, failure
}

func (d *Dialer) dial(ctx context.Context, way string, target DialTarget) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	if way == tunneled {
		return d.tunnels.Dial(ctx, target.ManagementCluster, target.ClusterID)
	}
	return d.directly(ctx, "tcp", target.Address)
}
