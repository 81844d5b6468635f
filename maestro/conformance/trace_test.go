package conformance

import (
	"fmt"
	"slices"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// TestTraceContextReachesAgent publishes with a trace context. The server and the agent create spans below the one of the source, and none for
// a resync, which may come long after the request.
func TestTraceContextReachesAgent(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	traces := tracing.With(provider, provider.Shutdown)
	r.Tune = func(c *app.Config) { c.Traces = traces }
	server := r.StartServer()
	consumer := r.consumer(server)
	start := func() *maestrotest.Process {
		return r.StartAgent(consumer, agent.Options{Cluster: cluster(t), Traces: traces})
	}
	running := start()
	cs := r.source(server, "cluster-service")
	cs.subscribe()
	// A work that is published before the agent's first resync reaches the agent in that resync. After a work has passed through the server and
	// the agent, the resync is complete.
	first := newBundle(consumer, "first")
	cs.must("create", first)
	cs.untilApplied(first.ID, 1)
	const parent = "b7ad6b7169203331"
	b := newBundle(consumer, "one")
	b.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-" + parent + "-01"
	names := func() (found []string) {
		for _, s := range spans.GetSpans() {
			if s.Parent.SpanID().String() != parent {
				t.Errorf("span %s is below %s", s.Name, s.Parent.SpanID())
			}
			found = append(found, s.Name)
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	expect := func(reason string, want ...string) {
		t.Helper()
		eventually.Soon(t, reason, func() error {
			if got := names(); !slices.Equal(got, want) {
				return fmt.Errorf("the spans are %q, want %q", got, want)
			}
			return nil
		})
	}
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)
	expect("a creation", "apply", "send", "store create")
	spans.Reset()
	running.Stop()
	start()
	other := newBundle(consumer, "other")
	cs.must("create", other)
	cs.untilApplied(other.ID, 1)
	expect("a resync, and a bundle without a trace context")
}
