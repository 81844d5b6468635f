package audittest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// Stopwatch is a Recorder that measures how long an action waits in each call of the audit. It measures one action at a time.
type Stopwatch struct {
	recorder audit.Recorder

	mu sync.Mutex
	// off makes actions have no records.
	off   bool
	begun time.Time
	times Times
}

// Times are how long the last action has waited in each call of the audit. Action is the time from the first call to the end of the last.
type Times struct{ Begin, Durable, End, Action time.Duration }

// NewStopwatch returns a Stopwatch that passes records on to a Recorder.
func NewStopwatch(recorder audit.Recorder) *Stopwatch { return &Stopwatch{recorder: recorder} }

// Times returns the times of the last action.
func (s *Stopwatch) Times() Times {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times
}

func (s *Stopwatch) set(off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off, s.times = off, Times{}
}

// Append implements audit.Recorder.
func (s *Stopwatch) Append(ctx context.Context, r audit.Record) error {
	return s.recorder.Append(ctx, r)
}

// Begin implements audit.Recorder.
func (s *Stopwatch) Begin(ctx context.Context, r audit.Record) (audit.Action, error) {
	begin := time.Now()
	s.mu.Lock()
	off := s.off
	s.mu.Unlock()
	var action audit.Action
	if !off {
		var err error
		if action, err = s.recorder.Begin(ctx, r); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun, s.times = begin, Times{Begin: time.Since(begin)}
	return &watched{action, s}, nil
}

// watched is an action of a Stopwatch. The action is nil if it has no records.
type watched struct {
	action audit.Action
	watch  *Stopwatch
}

// Durable implements audit.Action.
func (w *watched) Durable(ctx context.Context) (err error) {
	begin := time.Now()
	if w.action != nil {
		err = w.action.Durable(ctx)
	}
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	w.watch.times.Durable += time.Since(begin)
	return err
}

// End implements audit.Action.
func (w *watched) End(ctx context.Context, r audit.Record) (err error) {
	begin := time.Now()
	if w.action != nil {
		err = w.action.End(ctx, r)
	}
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	w.watch.times.End = time.Since(begin)
	w.watch.times.Action = time.Since(w.watch.begun)
	return err
}

// Measure measures what auditing adds to a request. In each round, it sends the request with and without an audit, and makes one bare write
// and fsync on the same disk. send returns how long the request took. Measure reports medians: of a request without an audit, of the time
// in which an audited one waits in each call of the audit and in all, the latter in relation to the bare fsync and to the request.
func (s *Stopwatch) Measure(b *testing.B, send func() time.Duration) {
	file, err := os.Create(filepath.Join(b.TempDir(), "bare"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	line := make([]byte, 800)
	var without, begun, durable, ended, waited, synced []time.Duration
	for b.Loop() {
		s.set(false)
		send()
		times := s.Times()
		begun, durable, ended = append(begun, times.Begin), append(durable, times.Durable), append(ended, times.End)
		waited = append(waited, times.Begin+times.Durable+times.End)
		s.set(true)
		without = append(without, send())
		begin := time.Now()
		if _, err := file.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			b.Fatal(err)
		}
		synced = append(synced, time.Since(begin))
	}
	b.ReportMetric(microseconds(without), "µs-request")
	b.ReportMetric(microseconds(begun), "µs-begin")
	b.ReportMetric(microseconds(durable), "µs-durable")
	b.ReportMetric(microseconds(ended), "µs-end")
	b.ReportMetric(microseconds(waited), "µs-waited")
	b.ReportMetric(microseconds(waited)/microseconds(synced), "waited/fsync")
	b.ReportMetric(microseconds(waited)/microseconds(without), "waited/request")
}

// microseconds returns a median.
func microseconds(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1e3
}
