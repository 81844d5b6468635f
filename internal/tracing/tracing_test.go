package tracing_test

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// collect is a collector that stores the spans it receives.
type collect struct {
	mu sync.Mutex
	// spans contains the trace IDs of the spans by name.
	spans    map[string]string
	services []string
}

func (c *collect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, attribute := range resource.GetResource().GetAttributes() {
			c.services = append(c.services, attribute.GetKey()+"="+attribute.GetValue().GetStringValue())
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans[span.GetName()] = string(span.GetTraceId())
			}
		}
	}
}

// TestSpansAreSent checks that a span and the calls within it are one trace on both ends of gRPC, and that the collector has all
// spans when the process ends.
func TestSpansAreSent(t *testing.T) {
	kept := &collect{spans: map[string]string{}}
	server := httptest.NewServer(kept)
	defer server.Close()
	traces := must.Get(tracing.New(t.Context(), "test", tracing.Options{Collector: server.URL, Ratio: 1}, nil))(t)

	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	called := grpc.NewServer(traces.ServerOption())
	grpc_health_v1.RegisterHealthServer(called, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() { _ = called.Serve(listener) })
	connection := must.Get(grpc.NewClient("passthrough:///"+listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), traces.DialOption()))(t)
	ctx, span := traces.Start(t.Context(), "request", trace.WithAttributes(tracing.Method(http.MethodPut)))
	must.Get(grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{}))(t)
	reference := tracing.Reference(ctx)
	span.End()
	_ = connection.Close()
	called.GracefulStop()
	wg.Wait()
	must.Do(t, traces.Shutdown(context.Background()))

	id := span.SpanContext().TraceID()
	if link, ok := tracing.Link(reference); !ok || link.SpanContext.TraceID() != id {
		t.Errorf("%q does not reference the span", reference)
	}
	if len(kept.spans) != 2 || len(kept.services) == 0 || kept.services[0] != "service.name=test" {
		// The spans of both ends of the call have the same name.
		t.Errorf("the collector has %d spans of %v", len(kept.spans), kept.services)
	}
	for name, trace := range kept.spans {
		if trace != string(id[:]) {
			t.Errorf("the span %s is in another trace", name)
		}
	}
}

// TestOff checks that without a collector the context of a caller is propagated and no trace is created.
func TestOff(t *testing.T) {
	traces := must.Get(tracing.New(t.Context(), "test", tracing.Options{}, nil))(t)
	if ctx, _ := traces.Start(t.Context(), "request"); tracing.Reference(ctx) != "" {
		t.Error("a trace was created")
	}
	const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := traces.Propagator.Extract(t.Context(), header{"traceparent": caller})
	if ctx, _ := traces.Start(ctx, "request"); tracing.Reference(ctx) != caller {
		t.Errorf("the context became %q", tracing.Reference(ctx))
	}
	if _, ok := tracing.Link("00-nothing"); ok {
		t.Error("a link without a reference")
	}
}

type header map[string]string

func (h header) Get(key string) string { return h[key] }
func (h header) Set(key, value string) { h[key] = value }
func (h header) Keys() []string        { return []string{"traceparent"} }

func TestOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		wrong     bool
	}{
		"none":      {nil, false},
		"collector": {[]string{"--otlp-endpoint", "http://127.0.0.1:4318"}, false},
		"gRPC":      {[]string{"--otlp-endpoint", "127.0.0.1:4317"}, true},
		"share":     {[]string{"--trace-ratio", "0.1"}, false},
		"too much":  {[]string{"--trace-ratio", "1.1"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var options tracing.Options
			flags := flag.NewFlagSet("test", flag.ContinueOnError)
			options.AddFlags(flags)
			must.Do(t, flags.Parse(tc.arguments))
			if err := options.Validate(); (err != nil) != tc.wrong {
				t.Errorf("got %v", err)
			}
		})
	}
}
