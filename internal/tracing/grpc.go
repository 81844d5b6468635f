package tracing

import (
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
)

// DialOption returns an option that creates a span for every call of a gRPC connection and sends its context in the metadata.
func (t *Tracing) DialOption() grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(t.Provider), otelgrpc.WithPropagators(t.Propagator)))
}

// ServerOption returns an option that creates a span for every call to a gRPC server, in the trace of the caller.
func (t *Tracing) ServerOption() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.Provider), otelgrpc.WithPropagators(t.Propagator)))
}
