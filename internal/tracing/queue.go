package tracing

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Bounds of the spans that wait to be sent. While the collector is unreachable, spans are lost, but memory stays bounded and
// requests are not delayed.
const (
	maxWaiting   = 4096
	maxBatch     = 512
	exportEvery  = 2 * time.Second
	exportWithin = 5 * time.Second
)

// counts count spans by result.
type counts struct{ sent, failed, dropped prometheus.Counter }

func newCounts(metrics prometheus.Registerer) counts {
	spans := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tracing_spans_total",
		Help: "Number of recorded spans, by result: sent to the collector, failed to be sent, or dropped because too many were waiting.",
	}, []string{"result"})
	if metrics != nil {
		metrics.MustRegister(spans)
	}
	return counts{spans.WithLabelValues("sent"), spans.WithLabelValues("failed"), spans.WithLabelValues("dropped")}
}

// queue sends spans in batches in the background. It never blocks: beyond maxWaiting spans it drops and counts new ones.
type queue struct {
	sdk.SpanProcessor
	counts  counts
	waiting *atomic.Int64
}

// newQueue returns the queue of an exporter.
func newQueue(exporter sdk.SpanExporter, counts counts) *queue {
	waiting := &atomic.Int64{}
	// The batch processor has room for all spans that the queue admits, so that it drops none itself.
	batches := sdk.NewBatchSpanProcessor(countingExporter{exporter, counts, waiting}, sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(maxBatch),
		sdk.WithBatchTimeout(exportEvery), sdk.WithExportTimeout(exportWithin))
	return &queue{batches, counts, waiting}
}

// OnEnd implements sdk.SpanProcessor.
func (q *queue) OnEnd(span sdk.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > maxWaiting {
		q.waiting.Add(-1)
		q.counts.dropped.Inc()
		return
	}
	q.SpanProcessor.OnEnd(span)
}

// countingExporter counts the spans that an exporter sends.
type countingExporter struct {
	sdk.SpanExporter
	counts  counts
	waiting *atomic.Int64
}

// ExportSpans implements sdk.SpanExporter.
func (e countingExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err != nil {
		e.counts.failed.Add(float64(len(spans)))
		return err
	}
	e.counts.sent.Add(float64(len(spans)))
	return nil
}
