package agent

import (
	"context"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"
	workv1 "open-cluster-management.io/api/work/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// maxApplySpans is the maximum number of spans of one version of a work: further attempts to apply it are in no trace.
const maxApplySpans = 8

// traces has the trace contexts of works that are not applied yet. It has at most one entry per work of the agent.
type traces struct {
	tracing  *tracing.Tracing
	consumer string
	lister   freshLister

	mu      sync.Mutex
	waiting map[string]*waitingTrace
}

// waitingTrace is the trace context of one version of a work.
type waitingTrace struct {
	reference  string
	generation int64
	spans      int
}

// received stores the trace context of an event with a work. The server sends it with new work, not in a resync. It must be called before the
// agent has the work: a version that the agent has already is not applied again soon.
func (t *traces) received(evt *cloudevents.Event, work *workv1.ManifestWork) {
	reference, _ := evt.Extensions()[maestroapi.ExtensionTraceParent].(string)
	if reference == "" || !work.DeletionTimestamp.IsZero() {
		return
	}
	if have, err := t.lister.Get(work.Name); err == nil && have.Generation >= work.Generation {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[string]*waitingTrace{}
	}
	t.waiting[work.Name] = &waitingTrace{reference: reference, generation: work.Generation}
}

// next returns the trace context in which the next attempt to apply a work is, and its version; "" if it is in none.
func (t *traces) next(name string) (reference string, generation int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.waiting[name]
	if w == nil {
		return "", 0
	}
	if w.spans++; w.spans == maxApplySpans {
		delete(t.waiting, name)
	}
	return w.reference, w.generation
}

// forget removes the trace context of a version of a work.
func (t *traces) forget(name string, generation int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.waiting[name]; w != nil && w.generation == generation {
		delete(t.waiting, name)
	}
}

// around returns a wrapper of a sync that applies works. It creates a span for each attempt until the work is applied.
func (t *traces) around(wrapped func(context.Context, string, func() error) error) func(context.Context, string, func() error) error {
	return func(ctx context.Context, name string, sync func() error) error {
		reference, generation := t.next(name)
		if reference == "" {
			return wrapped(ctx, name, sync)
		}
		ctx, span := t.tracing.Start(tracing.Continue(ctx, reference), "apply", trace.WithAttributes(tracing.BundleID.String(name), tracing.Consumer.String(t.consumer), tracing.Version.Int64(generation)))
		err := wrapped(ctx, name, sync)
		work, missing := t.lister.Get(name)
		if missing != nil || !work.DeletionTimestamp.IsZero() || isApplied(work, generation) {
			t.forget(name, generation)
		} else {
			span.SetAttributes(tracing.Status.String("not applied"))
		}
		tracing.End(span, err)
		return err
	}
}

// isApplied reports whether a version of a work is applied.
func isApplied(work *workv1.ManifestWork, generation int64) bool {
	condition := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
	return condition != nil && condition.Status == "True" && condition.ObservedGeneration >= generation
}
