package installation

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// The probes of a pod. Azure's load balancers use the same period and number by default.
const (
	probePeriod = 5 * time.Second
	maxFailures = 2
)

const (
	// connectTimeout limits a connection to a pod, with its TLS handshake, as in the DestinationRules of the chart ingress.
	connectTimeout = 2 * time.Second
	// connectRetries is the number of other pods to which a request is sent if no connection can be opened, as in the VirtualServices of the
	// chart ingress.
	connectRetries = 2
)

// The pauses before the endpoints of a Service are listed again.
const firstRelist, lastRelist = 100 * time.Millisecond, time.Second

// gateway sends the requests of clients outside of a cluster to the pods of a Service, in turn. It stands in for Istio's gateway and Azure's
// load balancer: it sends new requests only to ready endpoints, and connects to another pod if a connection cannot be opened. A request that
// a pod may have received is never repeated.
//
// Azure's load balancer probes the nodes on which gateways run. The gateway runs on none, so it probes the pods instead. A pod whose probes
// failed maxFailures times in a row gets no requests, and its connections are closed, until a probe succeeds.
type gateway struct {
	// list and watch return the endpoints of the Service in the current cluster, and dial connects to a pod.
	list  func(context.Context) (*discoveryv1.EndpointSliceList, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	dial  func(ctx context.Context, address string) (net.Conn, error)
	// tls is the configuration of connections to pods, and port is the number of their port.
	tls  *tls.Config
	port string
	log  *slog.Logger

	mu       sync.Mutex
	backends map[string]*backend
	last     int
}

// backend is a pod of the Service.
type backend struct {
	address   string
	transport *http.Transport

	// The mutex of the gateway guards what follows. ready is false if the endpoint is not ready, and failures is the number of probes that failed in a row.
	ready       bool
	failures    int
	connections map[net.Conn]bool
}

// serveGateway serves the pods of the Service with the name of its namespace on loopback, with a certificate for a host and for 127.0.0.1. config is
// that of connections to the pods. It returns the address.
func (s *Outside) serveGateway(service mesh.Peer, host string, config *tls.Config) (address string, err error) {
	w, _ := workload.Find(service)
	listener, err := s.listenTLS(service, host)
	if err != nil {
		return "", err
	}
	s.serve(listener, s.newGateway(string(service), strconv.Itoa(int(w.Ports[mesh.HTTP].Number)), config))
	return listener.Addr().String(), nil
}

// connectError is the error of a connection that could not be opened. No pod has received the request.
type connectError struct{ err error }

// Error implements error.
func (e *connectError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *connectError) Unwrap() error { return e.err }

// newGateway returns the gateway to the pods of the Service with the name of its namespace. It follows the Service until Close.
func (s *Outside) newGateway(service, port string, config *tls.Config) *gateway {
	g := &gateway{tls: config, port: port, log: s.log().With(logkey.Namespace, service), backends: map[string]*backend{},
		list: func(ctx context.Context) (*discoveryv1.EndpointSliceList, error) {
			return s.cluster().Client().DiscoveryV1().EndpointSlices(service).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		},
		watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = discoveryv1.LabelServiceName + "=" + service
			return s.cluster().Client().DiscoveryV1().EndpointSlices(service).Watch(ctx, options)
		},
		dial: func(ctx context.Context, address string) (net.Conn, error) { return s.cluster().Dial(ctx, address) },
	}
	s.onClose(g.start())
	return g
}

// start follows the endpoints and probes the pods until stop.
func (g *gateway) start() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.follow(ctx) })
	running.Go(func() {
		ticker := time.NewTicker(probePeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				g.probe(ctx)
			}
		}
	})
	return func() error {
		cancel()
		running.Wait()
		g.set(nil)
		return nil
	}
}

// follow sets the backends of the Service. It lists the endpoints again whenever the watch ends, also in a cluster that has replaced another
// one. Until then, the last known endpoints stay.
func (g *gateway) follow(ctx context.Context) {
	for pauses := backoff.New(firstRelist, lastRelist); ctx.Err() == nil; {
		if err := g.followOnce(ctx, pauses.Reset); err != nil && ctx.Err() == nil {
			g.log.DebugContext(ctx, "following the endpoints failed", logkey.Error, err)
		}
		_ = pauses.Wait(ctx) // its only error is that ctx has ended
	}
}

// followOnce lists the endpoints and follows their changes until the watch ends.
func (g *gateway) followOnce(ctx context.Context, listed func()) error {
	list, err := g.list(ctx)
	if err != nil {
		return err
	}
	slicesByName := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range list.Items {
		slicesByName[slice.Name] = &slice
	}
	g.set(slices.Collect(maps.Values(slicesByName)))
	changes, err := g.watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer changes.Stop()
	listed()
	for change := range changes.ResultChan() {
		slice, ok := change.Object.(*discoveryv1.EndpointSlice)
		switch {
		case !ok:
			return fmt.Errorf("the watch of endpoints returned %T", change.Object)
		case change.Type == watch.Deleted:
			delete(slicesByName, slice.Name)
		default:
			slicesByName[slice.Name] = slice
		}
		g.set(slices.Collect(maps.Values(slicesByName)))
	}
	return errors.New("the watch of endpoints has ended")
}

// set replaces the endpoints. One that is not ready gets no new requests; those in progress complete.
func (g *gateway) set(endpoints []*discoveryv1.EndpointSlice) {
	ready := map[string]bool{}
	for _, slice := range endpoints {
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				ready[net.JoinHostPort(address, g.port)] = endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			}
		}
	}
	var unready []*http.Transport
	g.mu.Lock()
	for address, known := range g.backends {
		if known.ready = ready[address]; !known.ready {
			unready = append(unready, known.transport)
		}
		if _, exists := ready[address]; !exists {
			delete(g.backends, address)
		}
	}
	for address, isReady := range ready {
		if g.backends[address] == nil {
			g.backends[address] = g.newBackend(address, isReady)
		}
	}
	g.mu.Unlock()
	for _, transport := range unready {
		transport.CloseIdleConnections() // each connection needs the mutex when it is closed
	}
}

func (g *gateway) newBackend(address string, ready bool) *backend {
	b := &backend{address: address, ready: ready, connections: map[net.Conn]bool{}}
	b.transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return g.connect(ctx, b)
	}}
	return b
}

// connect opens a connection to a pod.
func (g *gateway) connect(ctx context.Context, b *backend) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	plain, err := g.dial(ctx, b.address)
	if err != nil {
		return nil, &connectError{fmt.Errorf("connecting to %s: %w", b.address, err)}
	}
	secure := tls.Client(plain, g.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, &connectError{fmt.Errorf("connecting to %s: %w", b.address, errors.Join(err, plain.Close()))}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b.connections[plain] = true
	return &countedConnection{Conn: secure, closed: sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(b.connections, plain)
	})}, nil
}

// countedConnection calls closed when it is closed.
type countedConnection struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (c *countedConnection) Close() error {
	c.closed()
	return c.Conn.Close()
}

// probe probes all pods at the same time.
func (g *gateway) probe(ctx context.Context) {
	g.mu.Lock()
	probed := slices.Collect(maps.Values(g.backends))
	g.mu.Unlock()
	var running sync.WaitGroup
	for _, b := range probed {
		running.Go(func() {
			timed, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			connection, err := g.dial(timed, b.address)
			if err == nil {
				_ = connection.Close()
			}
			g.count(b, err)
		})
	}
	running.Wait()
}

// count counts a probe of a pod. The connections of a pod whose probes have failed are closed.
func (g *gateway) count(b *backend, failure error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if failure == nil {
		b.failures = 0
		return
	}
	if b.failures++; b.failures >= maxFailures {
		for connection := range b.connections {
			_ = connection.Close()
		}
	}
}

// pick returns the next pod for a request, without those that were tried; nil if there is none. If the probes of all pods failed, it ignores
// them.
func (g *gateway) pick(tried map[*backend]bool) *backend {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ready, healthy []*backend
	for b := range maps.Values(g.backends) {
		if !b.ready || tried[b] {
			continue
		}
		ready = append(ready, b)
		if b.failures < maxFailures {
			healthy = append(healthy, b)
		}
	}
	if len(healthy) > 0 {
		ready = healthy
	}
	if len(ready) == 0 {
		return nil
	}
	slices.SortFunc(ready, func(a, b *backend) int { return cmp.Compare(a.address, b.address) })
	g.last++
	return ready[g.last%len(ready)]
}

// RoundTrip implements http.RoundTripper.
func (g *gateway) RoundTrip(request *http.Request) (*http.Response, error) {
	failed, tried := errors.New("the Service has no ready endpoint"), map[*backend]bool{}
	for range 1 + connectRetries {
		b := g.pick(tried)
		if b == nil {
			break
		}
		tried[b] = true
		out := request.Clone(request.Context())
		out.URL.Scheme, out.URL.Host = "https", b.address
		if out.Body != nil && out.Body != http.NoBody {
			out.Body = io.NopCloser(request.Body) // a transport closes it also if it cannot connect
		}
		response, err := b.transport.RoundTrip(out)
		if err == nil {
			return response, nil
		}
		failed = err
		if _, unsent := errors.AsType[*connectError](err); !unsent {
			break
		}
	}
	if request.Body != nil {
		_ = request.Body.Close()
	}
	return nil, failed
}

// ServeHTTP sends a request to a pod. It responds with 503, as Istio's gateways do, if no pod responds.
func (g *gateway) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	(&httputil.ReverseProxy{
		Transport: g, FlushInterval: -1,
		Rewrite: func(proxied *httputil.ProxyRequest) {
			proxied.SetURL(&url.URL{Scheme: "https", Host: proxied.In.Host})
			proxied.Out.Host = proxied.In.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values := proxied.In.Header.Values(name); len(values) > 0 {
					proxied.Out.Header[name] = values
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, request *http.Request, err error) {
			g.log.ErrorContext(request.Context(), "sending a request to a pod failed", logkey.Method, request.Method, logkey.Path, request.URL.Path, logkey.Error, err)
			http.Error(w, "no healthy upstream: "+err.Error(), http.StatusServiceUnavailable)
		},
	}).ServeHTTP(w, request)
}
