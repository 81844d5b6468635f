package lifecycle

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// span starts a span of work for an operation, in the trace of the operation's request.
func (c *Controller) span(ctx context.Context, name string, o *database.OperationDocument, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	options = append(options, trace.WithAttributes(
		tracing.OperationID.String(o.OperationID), tracing.ResourceID.String(o.ResourceID),
		tracing.CorrelationID.String(o.CorrelationID), attribute.String("hcpmesh.request", string(o.Request)),
	))
	return c.traces.Start(tracing.Continue(ctx, o.TraceParent), name, options...)
}

// recordSpan records a span of a whole operation that has ended, from its request to its end.
func (c *Controller) recordSpan(ctx context.Context, o *database.OperationDocument) {
	_, span := c.span(ctx, "operation "+string(o.Request), o, trace.WithTimestamp(o.StartTime))
	span.SetAttributes(tracing.Status.String(string(o.Status)))
	if o.Status == hub.Failed {
		code := ""
		if o.Error != nil {
			code = o.Error.Code
		}
		span.SetStatus(codes.Error, code)
	}
	if o.EndTime != nil {
		span.End(trace.WithTimestamp(*o.EndTime))
		return
	}
	span.End()
}
