package spans

import (
	"fmt"
	"testing"
	"time"
)

func span(trace, operation string, start int64) *Span {
	return &Span{TraceID: trace, SpanID: fmt.Sprint(start), Start: time.Unix(start, 0), End: time.Unix(start+1, 0), Attributes: map[string]string{Operation: operation}}
}

// TestOldTracesAreForgotten checks that the trace that changed least recently is forgotten with its index, by the number of traces and by
// the number of spans.
func TestOldTracesAreForgotten(t *testing.T) {
	for name, limits := range map[string]Limits{
		"traces": {Traces: 2, SpansPerTrace: 10, Spans: 100},
		"spans":  {Traces: 100, SpansPerTrace: 10, Spans: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStore(limits)
			for i, trace := range []string{"a", "b", "a", "c"} {
				if !s.Add(span(trace, "op-"+trace, int64(i))) {
					t.Errorf("span %d was dropped", i)
				}
			}
			if s.Trace("b") != nil || len(s.Find(Operation, "op-b")) != 0 {
				t.Error("the oldest trace is stored")
			}
			if traces, spans := s.Size(); traces != 2 || spans != 3 || len(s.ids) != 2 {
				t.Errorf("%d traces with %d spans and %d index entries", traces, spans, len(s.ids))
			}
		})
	}
}

// TestSpansPerTraceAreLimited checks that later spans of a large trace are dropped and counted.
func TestSpansPerTraceAreLimited(t *testing.T) {
	s := NewStore(Limits{Traces: 2, SpansPerTrace: 2, Spans: 4})
	for i := range 5 {
		if stored := s.Add(span("a", "op", int64(i))); stored != (i < 2) {
			t.Errorf("span %d: stored %v", i, stored)
		}
	}
	if trace := s.Trace("a"); len(trace.Spans) != 2 || trace.Dropped != 3 {
		t.Errorf("the trace has %d spans and %d dropped ones", len(trace.Spans), trace.Dropped)
	}
}

// TestSpansAreOrdered checks that spans and traces are in order of their beginning, whatever their order of arrival.
func TestSpansAreOrdered(t *testing.T) {
	s := NewStore(DefaultLimits())
	for _, add := range []*Span{span("b", "op", 9), span("b", "op", 5), span("a", "OP", 1)} {
		s.Add(add)
	}
	found := s.Find(Operation, "op")
	if len(found) != 2 || found[0].ID != "a" || found[1].Spans[0].SpanID != "5" {
		t.Errorf("found %+v", found)
	}
}
