package tracing

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// held is an exporter that waits for release, and then fails if fails is set.
type held struct {
	release chan struct{}
	fails   bool
}

func (h held) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	<-h.release
	if h.fails {
		return errors.New("the collector is away")
	}
	return nil
}

func (held) Shutdown(context.Context) error { return nil }

// TestQueueDropsWhatDoesNotFit checks that a collector that does not respond delays no span, and that all spans are counted.
func TestQueueDropsWhatDoesNotFit(t *testing.T) {
	for name, fails := range map[string]bool{"sent": false, "failed": true} {
		t.Run(name, func(t *testing.T) {
			metrics := prometheus.NewRegistry()
			exporter := held{make(chan struct{}), fails}
			counts := newCounts(metrics)
			q := newQueue(exporter, counts)
			provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(q))
			traces := With(provider, provider.Shutdown)
			const excess = 100
			for range maxWaiting + excess {
				_, span := traces.Start(t.Context(), "span")
				span.End()
			}
			if n := testutil.ToFloat64(counts.dropped); n != excess {
				t.Errorf("%v spans are dropped, want %d", n, excess)
			}
			close(exporter.release)
			if err := traces.Shutdown(t.Context()); (err != nil) != fails && err != nil {
				t.Error(err)
			}
			sent, failed := testutil.ToFloat64(counts.sent), testutil.ToFloat64(counts.failed)
			if sent+failed != maxWaiting || (failed == maxWaiting) != fails {
				t.Errorf("%v spans are sent and %v failed", sent, failed)
			}
			if n := q.waiting.Load(); n != 0 {
				t.Errorf("%d spans still wait", n)
			}
		})
	}
}
