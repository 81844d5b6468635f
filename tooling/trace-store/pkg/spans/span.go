// Package spans stores the spans of recent traces in memory and finds traces by operation, request and resource. Memory is bounded: the
// traces that changed least recently are forgotten first, and the number of spans per trace is limited. Nothing is written to disk.
package spans

import "time"

// Span is one unit of work of a process.
type Span struct {
	TraceID string `json:"traceId"`
	SpanID  string `json:"spanId"`
	// ParentID is empty for the first span of a trace. The parent may be missing, for example while it is running.
	ParentID string `json:"parentId,omitempty"`
	Name     string `json:"name"`
	// Service is the name of the process.
	Service string `json:"service"`
	// Kind is server, client, producer, consumer or internal.
	Kind  string    `json:"kind"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Failed states that the work failed; Message is why, if that is known.
	Failed     bool              `json:"failed,omitempty"`
	Message    string            `json:"message,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Links are the IDs of related traces.
	Links []string `json:"links,omitempty"`
}

// Duration returns the time between the beginning and the end of the span.
func (s *Span) Duration() time.Duration { return s.End.Sub(s.Start) }

// Trace is a set of spans with the same trace ID.
type Trace struct {
	ID string `json:"traceId"`
	// Spans are in order of their beginning.
	Spans []*Span `json:"spans"`
	// Dropped is the number of spans that exceeded the limit of a trace.
	Dropped int `json:"dropped,omitempty"`
}

// Answer is the response to a query.
type Answer struct {
	// Traces are in order of their beginning.
	Traces []*Trace `json:"traces"`
}
