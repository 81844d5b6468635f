package lifecycle

import (
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// TestEndedOperationHasSpan: the span lasts from the request to the end of the operation, and is in the request's trace.
func TestEndedOperationHasSpan(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	c := &Controller{traces: tracing.With(provider, provider.Shutdown)}
	started := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	ended := started.Add(time.Minute)
	ctx, request := c.traces.Start(t.Context(), "request")
	defer request.End()
	for _, reference := range []string{tracing.Reference(ctx), "", "invalid"} {
		spans.Reset()
		c.recordSpan(ctx, &database.OperationDocument{
			OperationID: "id", Request: database.CreateRequest, Status: hub.Failed, Error: &database.OperationError{Code: "Broken", Message: "secret"},
			StartTime: started, EndTime: &ended, TraceParent: reference,
		})
		got := spans.GetSpans()[0]
		if got.Name != "operation Create" || !got.StartTime.Equal(started) || !got.EndTime.Equal(ended) || got.Status.Description != "Broken" {
			t.Errorf("the span is %+v", got)
		}
		below := got.SpanContext.TraceID() == request.SpanContext().TraceID() && got.Parent.SpanID() == request.SpanContext().SpanID()
		if below != (reference == tracing.Reference(ctx)) {
			t.Errorf("%q: the span is in the trace %s below %s", reference, got.SpanContext.TraceID(), got.Parent.SpanID())
		}
	}
}
