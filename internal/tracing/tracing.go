// Package tracing follows a request through the processes: it propagates the W3C trace context in HTTP headers and gRPC metadata,
// and sends spans to an OpenTelemetry collector if one is configured.
//
// A process creates one Tracing at its start and passes it to everything that creates spans; there is no global state. Without a
// collector no spans are recorded, but the trace context of a caller is still propagated. Spans contain routes, resource IDs and
// outcomes, and never bodies, tokens or keys.
package tracing

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
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
	// Ratio is the fraction of traces to record, from 0 to 1, of those that begin in this process. For others the caller decides.
	Ratio float64
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Collector, "otlp-endpoint", "", "`URL` of the OpenTelemetry collector that receives spans (OTLP over HTTP); empty sends none")
	flags.Float64Var(&o.Ratio, "trace-ratio", 1, "`fraction` of the traces that begin in this process to record, 0 to 1")
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

// Bounds of the spans that wait to be sent. While the collector is unreachable, spans are lost, but memory stays bounded and
// requests are not delayed.
const (
	maxWaiting   = 4096
	maxBatch     = 512
	exportEvery  = 2 * time.Second
	exportWithin = 5 * time.Second
)

// Tracing creates spans and propagates their context.
type Tracing struct {
	Provider   trace.TracerProvider
	Propagator propagation.TextMapPropagator
	tracer     trace.Tracer
	shutdown   func(ctx context.Context) error
}

// scope is the name of the instrumentation.
const scope = "github.com/hcpmesh/hcpmesh"

// New returns the Tracing of the process with the given name. Call Flush or Shutdown to send the remaining spans.
func New(ctx context.Context, name string, options Options) (*Tracing, error) {
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
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(options.Ratio))),
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(exportEvery),
			sdk.WithExportTimeout(exportWithin)),
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

// Flush is Shutdown at the end of a process, when ctx has ended. It waits for at most the given time; spans that are not sent by
// then are lost.
func (t *Tracing) Flush(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	_ = t.shutdown(ctx)
}

// traceParent is the header of the W3C Trace Context.
const traceParent = "traceparent"

// Reference returns the trace context of ctx as text, for storage with the results of a request; "" if ctx has none.
func Reference(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get(traceParent)
}

// Link returns a link to the span of a Reference. ok is false if the reference is not valid.
func Link(reference string) (link trace.Link, ok bool) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceParent: reference})
	of := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: of}, of.IsValid()
}
