package tracing

import (
	"net/http"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TestSampling checks which spans are recorded, by the HTTP method that they have and by their parents.
func TestSampling(t *testing.T) {
	const sampled, other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for name, tc := range map[string]struct {
		reason, method, parent string
		ratio                  float64
		want                   bool
	}{
		"change":            {"operations are always recorded", http.MethodPut, "", 0, true},
		"change of another": {"also if the caller does not record its trace", http.MethodDelete, other, 0, true},
		"read":              {"a fraction of the reads is recorded", http.MethodGet, "", 1, true},
		"read, no ratio":    {"a fraction of the reads is recorded", http.MethodGet, "", 0, false},
		"read of another":   {"the caller decides about reads", http.MethodGet, other, 1, false},
		"read in a trace":   {"the caller decides about reads", http.MethodGet, sampled, 0, true},
		"work":              {"work without a request has no trace", "", "", 1, false},
		"work in a trace":   {"work of an operation is recorded", "", sampled, 0, true},
		"other work":        {"the trace of the work is not recorded", "", other, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			provider := sdk.NewTracerProvider(sdk.WithSampler(newSampler(tc.ratio)))
			var options []trace.SpanStartOption
			if tc.method != "" {
				options = append(options, trace.WithAttributes(Method(tc.method)))
			}
			ctx, span := With(provider, nil).Start(Continue(t.Context(), tc.parent), "span", options...)
			if got := span.IsRecording(); got != tc.want || (Recorded(ctx) != "") != tc.want {
				t.Errorf("recorded: %v with the reference %q, want %v: %s", got, Recorded(ctx), tc.want, tc.reason)
			}
			if of := trace.SpanContextFromContext(Continue(t.Context(), tc.parent)); of.IsValid() && span.SpanContext().TraceID() != of.TraceID() {
				t.Error("the span is in another trace")
			}
		})
	}
}
