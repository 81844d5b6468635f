package spans

import (
	"cmp"
	"container/list"
	"slices"
	"strings"
	"sync"
)

// Limits bound the memory of a Store.
type Limits struct {
	// Traces is the number of traces, SpansPerTrace that of the spans of one trace, and Spans that of the spans of all traces.
	Traces, SpansPerTrace, Spans int
}

// DefaultLimits returns the limits of a local region, which need at most about 200 MB.
func DefaultLimits() Limits { return Limits{Traces: 10_000, SpansPerTrace: 1000, Spans: 100_000} }

// The attributes of spans by which traces are found.
const (
	Operation   = "hcpmesh.operation_id"
	Correlation = "hcpmesh.correlation_id"
	Resource    = "hcpmesh.resource_id"
)

// Store is a set of traces. Its methods are safe for concurrent use.
type Store struct {
	limits Limits

	mu     sync.Mutex
	traces map[string]*entry
	// recent has the entries in order of their last change, the oldest first.
	recent *list.List
	spans  int
	// ids are the IDs of the traces with a value of an attribute.
	ids map[key]map[string]bool
}

// key is a value of an attribute.
type key struct{ attribute, value string }

// entry is one trace of a store.
type entry struct {
	trace   *Trace
	keys    map[key]bool
	element *list.Element
}

// NewStore returns an empty store.
func NewStore(limits Limits) *Store {
	return &Store{limits: limits, traces: map[string]*entry{}, recent: list.New(), ids: map[key]map[string]bool{}}
}

// Add stores a span. It returns false if the trace has too many.
func (s *Store) Add(span *Span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.traces[span.TraceID]
	if e == nil {
		e = &entry{trace: &Trace{ID: span.TraceID}, keys: map[key]bool{}}
		e.element = s.recent.PushBack(e)
		s.traces[span.TraceID] = e
	} else {
		s.recent.MoveToBack(e.element)
	}
	if len(e.trace.Spans) >= s.limits.SpansPerTrace {
		e.trace.Dropped++
		return false
	}
	e.trace.Spans = append(e.trace.Spans, span)
	s.spans++
	for _, attribute := range []string{Operation, Correlation, Resource} {
		if value := span.Attributes[attribute]; value != "" {
			k := keyOf(attribute, value)
			e.keys[k] = true
			if s.ids[k] == nil {
				s.ids[k] = map[string]bool{}
			}
			s.ids[k][span.TraceID] = true
		}
	}
	for len(s.traces) > s.limits.Traces || s.spans > s.limits.Spans {
		s.forget(s.recent.Front().Value.(*entry))
	}
	return true
}

// keyOf returns the key of a value. ARM compares IDs without regard to case.
func keyOf(attribute, value string) key { return key{attribute, strings.ToLower(value)} }

func (s *Store) forget(e *entry) {
	s.recent.Remove(e.element)
	delete(s.traces, e.trace.ID)
	s.spans -= len(e.trace.Spans)
	for k := range e.keys {
		delete(s.ids[k], e.trace.ID)
		if len(s.ids[k]) == 0 {
			delete(s.ids, k)
		}
	}
}

// Trace returns a trace, or nil.
func (s *Store) Trace(id string) *Trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.traces[strings.ToLower(id)]; e != nil {
		return snapshot(e.trace)
	}
	return nil
}

// Find returns the traces with a value of an attribute of a span.
func (s *Store) Find(attribute, value string) []*Trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*Trace
	for id := range s.ids[keyOf(attribute, value)] {
		found = append(found, snapshot(s.traces[id].trace))
	}
	slices.SortFunc(found, func(a, b *Trace) int {
		return cmp.Or(a.Spans[0].Start.Compare(b.Spans[0].Start), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// Size returns the number of traces and of spans.
func (s *Store) Size() (traces, spans int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.traces), s.spans
}

// snapshot returns a copy with the spans in order of their beginning. Spans do not change.
func snapshot(t *Trace) *Trace {
	c := *t
	c.Spans = slices.Clone(t.Spans)
	slices.SortStableFunc(c.Spans, func(a, b *Span) int { return a.Start.Compare(b.Start) })
	return &c
}
