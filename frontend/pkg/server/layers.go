package server

import (
	"context"
	"net/http"
	"runtime/debug"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// layer wraps the handling of every request and continues it with next.
type layer func(s *Server, ctx context.Context, rq *request, next func(ctx context.Context))

// layers returns the layers around a request, the outermost first. They see every request, also rejected ones and
// panics: each request gets a response, metrics, a log record, IDs, a span in its trace and, if it requested a change
// or was refused, an audit record.
func layers() []layer {
	return []layer{
		recoverPanic,
		observe,
		correlate,
		traced,
		logAudit,
		recordRefusal,
	}
}

// recoverPanic responds to a request whose handling panicked.
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
		s.Log.ErrorContext(ctx, "request handling panicked", logkey.RequestID, rq.requestID, logkey.CorrelationID, rq.correlationID, logkey.Route, rq.match.pattern,
			logkey.Panic, cause, logkey.Stack, string(debug.Stack()))
		s.writeError(rq, apierror.New(apierror.Internal, "panic"))
	}()
	next(ctx)
}

// correlate assigns a request ID and adopts the caller's correlation IDs.
func correlate(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	rq.identify(s.routes)
	next(ctx)
}

// spanOptions are the options of the spans of requests by known method.
var spanOptions = func() map[string][]trace.SpanStartOption {
	options := map[string][]trace.SpanStartOption{}
	for _, method := range append(slices.Clone(knownMethods), otherMethod) {
		options[method] = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(tracing.Method(method))}
	}
	return options
}()

// traced creates a span for the request in the caller's trace (W3C Trace Context), or in a new trace.
func traced(s *Server, ctx context.Context, rq *request, next func(ctx context.Context)) {
	name := rq.match.pattern
	if name == "" {
		name = "unknown"
	}
	method := knownMethod(rq.http.Method)
	ctx = s.Tracing.Propagator.Extract(ctx, propagation.HeaderCarrier(rq.http.Header))
	ctx, span := s.Tracing.Start(ctx, method+" "+name, spanOptions[method]...)
	rq.span = span.SpanContext()
	defer func() {
		if span.IsRecording() {
			status := rq.responseStatus()
			span.SetAttributes(
				attribute.String("http.route", rq.match.pattern), attribute.Int("http.response.status_code", status),
				tracing.CorrelationID.String(rq.correlationID), tracing.ResourceID.String(rq.resourceID), tracing.OperationID.String(rq.operationID),
			)
			if status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, http.StatusText(status))
			}
		}
		span.End()
	}()
	next(ctx)
}
