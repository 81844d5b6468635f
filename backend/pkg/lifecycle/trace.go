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

// span starts a span of work for an operation. The response to the operation's request was sent long ago, so the span
// starts a trace of its own and links to the request's trace.
func (c *Controller) span(ctx context.Context, name string, o *database.OperationDocument, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	options = append(options, trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("hcpmesh.operation_id", o.OperationID), attribute.String("hcpmesh.resource_id", o.ResourceID),
		attribute.String("hcpmesh.correlation_id", o.CorrelationID), attribute.String("hcpmesh.request", string(o.Request)),
	))
	if link, ok := tracing.Link(o.TraceParent); ok {
		options = append(options, trace.WithLinks(link))
	}
	return c.traces.Start(ctx, name, options...)
}

// recordSpan records a span of a whole operation that has ended, from its request to its end.
func (c *Controller) recordSpan(ctx context.Context, o *database.OperationDocument) {
	_, span := c.span(ctx, "operation "+string(o.Request), o, trace.WithTimestamp(o.StartTime))
	span.SetAttributes(attribute.String("hcpmesh.status", string(o.Status)))
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
