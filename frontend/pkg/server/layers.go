package server

import (
	"context"
	"net/http"
	"runtime/debug"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// layer stands around the handling of every request, which it starts by next.
type layer func(s *Server, ctx context.Context, rq *request, next func(ctx context.Context))

// layers are what stands around a request, the outermost first: whatever happens further in, the request is answered,
// counted and logged, carries its ids, belongs to its trace, and is recorded when it was to change something, refused
// or not.
func layers() []layer {
	return []layer{
		recoverPanic,
		observe,
		correlate,
		traced,
		audit,
	}
}

// recoverPanic answers a request whose handling panicked.
func recoverPanic(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if cause == http.ErrAbortHandler {
			panic(cause)
		}
		s.metrics.panics.Inc()
		s.Log.Error("panic", "request_id", rq.requestID, "correlation_id", rq.correlationID, "route", rq.match.pattern,
			"panic", cause, "stack", string(debug.Stack()))
		s.fail(rq, apierror.New(apierror.Internal, "panic"))
	}()
	next(ctx)
}

// correlate names the request, and takes over the names that its caller gave it.
func correlate(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	rq.identify(s.routes)
	next(ctx)
}

// traced makes the request a span of its caller's trace (W3C Trace Context), or the first one of a new trace.
func traced(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	name := rq.match.pattern
	if name == "" {
		name = "unknown"
	}
	method := knownMethod(rq.http.Method)
	ctx = s.Tracing.Propagator.Extract(ctx, propagation.HeaderCarrier(rq.http.Header))
	ctx, span := s.Tracing.Start(ctx, method+" "+name, trace.WithSpanKind(trace.SpanKindServer))
	if of := span.SpanContext(); of.IsValid() {
		rq.traceID, rq.traceParent = of.TraceID().String(), tracing.Reference(ctx)
	}
	defer func() {
		if span.IsRecording() {
			status := rq.outcome()
			span.SetAttributes(
				attribute.String("http.request.method", method), attribute.String("http.route", rq.match.pattern),
				attribute.Int("http.response.status_code", status), attribute.String("hcpmesh.correlation_id", rq.correlationID),
				attribute.String("hcpmesh.resource_id", rq.resourceID), attribute.String("hcpmesh.operation_id", rq.operationID),
			)
			if status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, http.StatusText(status))
			}
		}
		span.End()
	}()
	next(ctx)
}
