package grpcserver

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The values of the label grpc_type.
const (
	unaryCall    = "unary"
	clientStream = "client_stream"
	serverStream = "server_stream"
	bidiStream   = "bidi_stream"
)

// Metrics are the metrics of gRPC servers, with the names and labels of go-grpc-middleware, for which dashboards exist. Only
// methods that a server registers have series.
type Metrics struct {
	started, handled *prometheus.CounterVec
	handling         *prometheus.HistogramVec
}

// NewMetrics creates and registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		started: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_started_total", Help: "Calls that the gRPC server began to handle.",
		}, []string{"grpc_type", "grpc_service", "grpc_method"}),
		handled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grpc_server_handled_total", Help: "Calls that the gRPC server has completed, by status code, with those that were refused.",
		}, []string{"grpc_type", "grpc_service", "grpc_method", "grpc_code"}),
		handling: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "Duration of unary calls in seconds. Streams end with their client or server, so their duration is not a latency.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"grpc_type", "grpc_service", "grpc_method"}),
	}
	registry.MustRegister(m.started, m.handled, m.handling)
	return m
}

// ServerOptions returns the options of a server that counts its calls. They must be the first options with interceptors, so that
// calls that other interceptors refuse are counted.
func (m *Metrics) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(m.unary), grpc.ChainStreamInterceptor(m.stream)}
}

// Initialize exports the counters of all methods of a server with the value 0, because rates need a series before the first
// failure. It is called after the services are registered.
func (m *Metrics) Initialize(server *grpc.Server) {
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			m.started.WithLabelValues(typeOf(method.IsClientStream, method.IsServerStream), service, method.Name)
			m.handled.WithLabelValues(typeOf(method.IsClientStream, method.IsServerStream), service, method.Name, codes.OK.String())
		}
	}
}

func typeOf(client, server bool) string {
	switch {
	case client && server:
		return bidiStream
	case client:
		return clientStream
	case server:
		return serverStream
	}
	return unaryCall
}

// split returns the service and the method of a full method, /package.Service/Method.
func split(full string) (service, method string) {
	service, method, _ = strings.Cut(strings.TrimPrefix(full, "/"), "/")
	return service, method
}

func (m *Metrics) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	service, method := split(info.FullMethod)
	m.started.WithLabelValues(unaryCall, service, method).Inc()
	begun := time.Now()
	response, err := handle(ctx, request)
	m.handled.WithLabelValues(unaryCall, service, method, codeOf(err)).Inc()
	m.handling.WithLabelValues(unaryCall, service, method).Observe(time.Since(begun).Seconds())
	return response, err
}

func (m *Metrics) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	service, method := split(info.FullMethod)
	kind := typeOf(info.IsClientStream, info.IsServerStream)
	m.started.WithLabelValues(kind, service, method).Inc()
	err := handle(server, stream)
	m.handled.WithLabelValues(kind, service, method, codeOf(err)).Inc()
	return err
}

// codeOf returns the name of the code that the client receives. A number without a name counts as Unknown, because a handler may
// return any number.
func codeOf(err error) string {
	code := status.FromContextError(err).Code()
	if s, ok := status.FromError(err); ok {
		code = s.Code()
	}
	if code > codes.Unauthenticated {
		code = codes.Unknown
	}
	return code.String()
}
