package tracing

import (
	"net/http"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler decides about spans without a recorded parent. Requests for changes are recorded, also if the caller does not record its trace,
// because operations must be traceable. Of reads without a caller's trace, a fraction is recorded. Spans of work without a request, such as
// health checks between processes, are not.
type sampler struct{ reads sdk.Sampler }

// newSampler returns the sampler of a process that records a fraction of the reads.
func newSampler(ratio float64) sdk.Sampler {
	s := sampler{sdk.TraceIDRatioBased(ratio)}
	return sdk.ParentBased(s, sdk.WithRemoteParentNotSampled(s))
}

// ShouldSample implements sdk.Sampler.
func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	decision := sdk.SamplingResult{Decision: sdk.Drop, Tracestate: parent.TraceState()}
	for _, a := range p.Attributes {
		if a.Key != method {
			continue
		}
		switch a.Value.AsString() {
		case http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete:
			decision.Decision = sdk.RecordAndSample
		default:
			if !parent.IsValid() {
				return s.reads.ShouldSample(p)
			}
		}
	}
	return decision
}

// Description implements sdk.Sampler.
func (s sampler) Description() string { return "Changes{" + s.reads.Description() + "}" }
