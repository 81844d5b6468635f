// Package tracing follows a request through the processes: it propagates the W3C trace context in HTTP headers and gRPC metadata,
// and sends spans to an OpenTelemetry collector if one is configured.
//
// A process creates one Tracing at its start and passes it to everything that creates spans; there is no global state. Without a
// collector no spans are recorded, but the trace context of a caller is still propagated. Spans contain routes, resource IDs and
// outcomes, and never bodies, tokens or keys.
//
// A trace begins with a request to the frontend or to admin. Whatever continues the work later, in any process, stores the Reference of
// the trace with the work and continues the trace with Continue. Work without a request has no trace.
package tracing

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Options are the flags of a process that records traces.
type Options struct {
	// Collector is the URL of an OTLP/HTTP endpoint, for example http://127.0.0.1:4318; empty records nothing.
	Collector string
	// Ratio is the fraction of traces to record, from 0 to 1, of those that begin in this process with a read. Requests for changes are
	// always recorded. For other spans the caller decides.
	Ratio float64
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Collector, "otlp-endpoint", "", "`URL` of the OpenTelemetry collector that receives spans (OTLP over HTTP); empty sends none")
	flags.Float64Var(&o.Ratio, "trace-ratio", 1, "`fraction` of the reads whose traces begin in this process to record, 0 to 1; requests for changes are always recorded")
}

// Validate returns an error that names the first invalid flag.
func (o *Options) Validate() error {
	if o.Ratio < 0 || o.Ratio > 1 {
		return errors.New("--trace-ratio: must be from 0 to 1")
	}
	if o.Collector == "" {
		return nil
	}
	if u, err := url.Parse(o.Collector); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("--otlp-endpoint: must be an http or https URL")
	}
	return nil
}

// Tracing creates spans and propagates their context.
type Tracing struct {
	Provider   trace.TracerProvider
	Propagator propagation.TextMapPropagator
	tracer     trace.Tracer
	shutdown   func(ctx context.Context) error
}

// scope is the name of the instrumentation.
const scope = "github.com/hcpmesh/hcpmesh"

// New returns the Tracing of the process with the given name. It registers the metric of the spans that were sent and lost, unless metrics
// is nil. Call Flush or Shutdown to send the remaining spans.
func New(ctx context.Context, name string, options Options, metrics prometheus.Registerer) (*Tracing, error) {
	counts := newCounts(metrics)
	if options.Collector == "" {
		return With(noop.NewTracerProvider(), nil), nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimSuffix(options.Collector, "/")+"/v1/traces"),
		otlptracehttp.WithTimeout(exportWithin))
	if err != nil {
		return nil, fmt.Errorf("creating the exporter of spans to %s: %w", options.Collector, err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", name))),
		sdk.WithSampler(newSampler(options.Ratio)),
		sdk.WithSpanProcessor(newQueue(exporter, counts)),
	)
	return With(provider, provider.Shutdown), nil
}

// With returns a Tracing that uses a provider; shutdown may be nil.
func With(provider trace.TracerProvider, shutdown func(ctx context.Context) error) *Tracing {
	if shutdown == nil {
		shutdown = func(context.Context) error { return nil }
	}
	return &Tracing{Provider: provider, Propagator: propagation.TraceContext{}, tracer: provider.Tracer(scope), shutdown: shutdown}
}

// Off returns a Tracing that records nothing and propagates the context of callers.
func Off() *Tracing { return With(noop.NewTracerProvider(), nil) }

// Start starts a span.
func (t *Tracing) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, options...)
}

// Shutdown sends the waiting spans until ctx ends.
func (t *Tracing) Shutdown(ctx context.Context) error { return t.shutdown(ctx) }

// flushTimeout bounds the sending of the last spans of a process.
const flushTimeout = 5 * time.Second

// Flush is Shutdown at the end of a process, when ctx has ended. It waits for at most 5 seconds; spans that are not sent by
// then are lost.
func (t *Tracing) Flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	_ = t.shutdown(ctx)
}

// traceParent is the header of the W3C Trace Context.
const traceParent = "traceparent"

// Reference returns the trace context of ctx as text, for storage with the results of a request; "" if ctx has none.
func Reference(ctx context.Context) string { return ReferenceTo(trace.SpanContextFromContext(ctx)) }

// ReferenceTo returns the Reference of a context whose span is the given one; "" if the span is not valid.
func ReferenceTo(span trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), span), carrier)
	return carrier.Get(traceParent)
}

// Recorded returns the Reference of ctx if its trace is recorded, and "" otherwise. It is for storage with work that continues the trace.
func Recorded(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	return Reference(ctx)
}

// Continue returns ctx with the trace context of a Reference, so that spans that start with it are in that trace. If the reference is
// empty or invalid, they are in no trace.
func Continue(ctx context.Context, reference string) context.Context {
	of := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceParent: reference})
	return trace.ContextWithRemoteSpanContext(ctx, trace.SpanContextFromContext(of))
}

// End ends a span and records its error, if err is not nil. Errors of this repository contain no secrets.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, clip(err.Error()))
	}
	span.End()
}

// maxMessage is the maximum length of the message of a failed span, in bytes.
const maxMessage = 512

func clip(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	return strings.ToValidUTF8(text, "")
}

// Link returns a link to the span of a Reference. ok is false if the reference is not valid.
func Link(reference string) (link trace.Link, ok bool) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceParent: reference})
	of := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: of}, of.IsValid()
}
