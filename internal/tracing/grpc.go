package tracing

import (
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
)

// DialOption makes a span of every call of a gRPC connection, and sends its context along in the call's metadata.
func (t *Tracing) DialOption() grpc.DialOption {
	return grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(t.Provider), otelgrpc.WithPropagators(t.Propagator)))
}

// ServerOption makes a span of every call that a gRPC server answers, within the trace of its caller.
func (t *Tracing) ServerOption() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(t.Provider), otelgrpc.WithPropagators(t.Propagator)))
}
