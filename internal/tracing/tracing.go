// Package tracing follows one request through the processes: W3C trace context in HTTP headers and in gRPC metadata, and
// spans that are sent to an OpenTelemetry collector when one is configured.
//
// A process makes one Tracing at its start and hands it to what makes spans; nothing is global. Without a collector no
// span is recorded, and the context of a caller that has one is still carried on. A span names routes, resource ids and
// outcomes; never a body, a token or a key.
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

// Options are the flags of a process that traces.
type Options struct {
	// Collector is the URL of an OTLP/HTTP endpoint, as in http://127.0.0.1:4318; empty records nothing.
	Collector string
	// Ratio is the share of the traces begun here that are recorded; of those begun elsewhere their caller decides.
	Ratio float64
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Collector, "otlp-endpoint", "", "`URL` of the OpenTelemetry collector (OTLP over HTTP) that spans are sent to; empty sends none")
	flags.Float64Var(&o.Ratio, "trace-ratio", 1, "`share` of the traces that begin here to record, 0 to 1")
}

// Validate names the first flag that is wrong.
func (o *Options) Validate() error {
	if o.Ratio < 0 || o.Ratio > 1 {
		return errors.New("--trace-ratio: a share is from 0 to 1")
	}
	if o.Collector == "" {
		return nil
	}
	if u, err := url.Parse(o.Collector); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("--otlp-endpoint: an http or https URL is needed")
	}
	return nil
}

// The bounds of what waits to be sent: a collector that is away costs spans, never memory or requests.
const (
	maxWaiting   = 4096
	maxBatch     = 512
	exportEvery  = 2 * time.Second
	exportWithin = 5 * time.Second
)

// Tracing makes spans and carries their context.
type Tracing struct {
	Provider   trace.TracerProvider
	Propagator propagation.TextMapPropagator
	tracer     trace.Tracer
	shutdown   func(ctx context.Context) error
}

// scope names the instrumentation.
const scope = "github.com/hcpmesh/hcpmesh"

// New makes the Tracing of the process called name. Shutdown sends what is left.
func New(ctx context.Context, name string, options Options) (*Tracing, error) {
	if options.Collector == "" {
		return With(noop.NewTracerProvider(), nil), nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimSuffix(options.Collector, "/")+"/v1/traces"),
		otlptracehttp.WithTimeout(exportWithin))
	if err != nil {
		return nil, fmt.Errorf("preparing to send spans to %s: %w", options.Collector, err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", name))),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(options.Ratio))),
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(exportEvery),
			sdk.WithExportTimeout(exportWithin)),
	)
	return With(provider, provider.Shutdown), nil
}

// With makes a Tracing of a provider; shutdown may be nil.
func With(provider trace.TracerProvider, shutdown func(ctx context.Context) error) *Tracing {
	if shutdown == nil {
		shutdown = func(context.Context) error { return nil }
	}
	return &Tracing{Provider: provider, Propagator: propagation.TraceContext{}, tracer: provider.Tracer(scope), shutdown: shutdown}
}

// Off records nothing, and carries the context of callers on.
func Off() *Tracing { return With(noop.NewTracerProvider(), nil) }

// Start begins a span.
func (t *Tracing) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, options...)
}

// Shutdown sends the spans that wait, within the time that ctx gives.
func (t *Tracing) Shutdown(ctx context.Context) error { return t.shutdown(ctx) }

// Flush is Shutdown at the end of a process, whose ctx is over: it takes at most the time that is given, and what cannot be
// sent by then is lost.
func (t *Tracing) Flush(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	_ = t.shutdown(ctx)
}

// traceParent is the header of the W3C's Trace Context.
const traceParent = "traceparent"

// Reference is the trace context of ctx as text, to be kept with what a request leaves behind; empty when there is none.
func Reference(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get(traceParent)
}

// Link is the link of a span to what a Reference names; ok is false when it names nothing.
func Link(reference string) (link trace.Link, ok bool) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceParent: reference})
	of := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: of}, of.IsValid()
}
