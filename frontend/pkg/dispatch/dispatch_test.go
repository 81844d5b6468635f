package dispatch_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/dispatch"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// silent is a Cluster Service that never responds.
type silent struct{ dispatch.ClusterService }

func (silent) ApplyCluster(ctx context.Context, _ *database.ClusterDocument) (clusterservice.Report, error) {
	<-ctx.Done()
	return clusterservice.Report{}, ctx.Err()
}

// broken is a Cluster Service that fails every call and records the trace of the call.
type broken struct {
	dispatch.ClusterService
	trace *trace.TraceID
}

func (b broken) DeleteNodePool(ctx context.Context, _ *database.NodePoolDocument) (clusterservice.Report, error) {
	*b.trace = trace.SpanContextFromContext(ctx).TraceID()
	return clusterservice.Report{}, errors.New("no")
}

func counted(t *testing.T, metrics *prometheus.Registry, result string) float64 {
	t.Helper()
	families := must.Get(metrics.Gather())(t)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "frontend_dispatch_total" && strings.Contains(metric.String(), `"`+result+`"`) {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// TestUnavailableClusterService: while Cluster Service does not respond, sending does not block, each call ends at its
// deadline, and changes that exceed the queue are dropped and counted.
func TestUnavailableClusterService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		d := dispatch.New(silent{}, slog.New(slog.DiscardHandler), metrics)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()
		synctest.Wait()
		const sent = 2000
		for range sent {
			d.Cluster(t.Context(), &database.ClusterDocument{}, false, "")
		}
		synctest.Wait()
		dropped := counted(t, metrics, "dropped")
		if dropped < sent-1024-8 || dropped > sent-1024 {
			t.Errorf("%v changes were dropped of %d", dropped, sent)
		}
		time.Sleep(10 * time.Minute) // virtual time
		synctest.Wait()
		if failed := counted(t, metrics, "failed"); failed != sent-dropped {
			t.Errorf("%v changes failed of %v that were queued", failed, sent-dropped)
		}
		stop()
		<-done
	})
}

// TestRejectedChange: a failed call is only counted, because the backend sends the change again. The call has the trace of
// the request but not its deadline, which may be over.
func TestRejectedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		var called trace.TraceID
		d := dispatch.New(broken{trace: &called}, slog.New(slog.DiscardHandler), metrics)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()
		of := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
		request, answered := context.WithCancel(trace.ContextWithSpanContext(t.Context(), of))
		answered()
		d.NodePool(request, &database.NodePoolDocument{}, true, "")
		synctest.Wait()
		if failed := counted(t, metrics, "failed"); failed != 1 {
			t.Errorf("%v changes failed", failed)
		}
		if called != of.TraceID() {
			t.Errorf("called in the trace %s", called)
		}
		stop()
		<-done
	})
}
