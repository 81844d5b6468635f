package writer_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// bench is a writer without a sink, and a file on the same disk to compare it with.
type bench struct {
	*writer.Writer
	bare *os.File
	line []byte
}

func newBench(b *testing.B) *bench {
	b.Helper()
	dir := b.TempDir()
	key := must.Get(audit.GenerateKey())(b)
	d := &discard{}
	w := must.Get(writer.Open(writer.Config{Dir: filepath.Join(dir, "queue"), Service: "admin", Key: key, Log: d, Witness: d, MaxBytes: 1 << 30,
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}))(b)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	bare := must.Get(os.OpenFile(filepath.Join(dir, "bare"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(b)
	b.Cleanup(func() { _ = bare.Close() })
	encoded := must.Get(audit.EncodeRecord(record(0)))(b)
	line, _ := audit.AppendRecord(nil, audit.Head{Writer: w.Name(), Time: time.Now()}, audit.Position{}, audit.Entry{Record: encoded})
	return &bench{w, bare, line}
}

// sync writes and syncs the bytes of a record, and returns the time that it took.
func (b *bench) sync(t *testing.B) time.Duration {
	begin := time.Now()
	must.Get(b.bare.Write(b.line))(t)
	must.Do(t, unix.Fdatasync(int(b.bare.Fd())))
	return time.Since(begin)
}

// BenchmarkAppend measures what an audit record costs a request besides the fdatasync. It compares one Append with one write and
// fdatasync of the same bytes on the same disk, in alternation, and reports the ratio of the sums.
func BenchmarkAppend(b *testing.B) {
	w := newBench(b)
	var appended, synced time.Duration
	for b.Loop() {
		begin := time.Now()
		must.Do(b, w.Append(b.Context(), record(0)))
		appended += time.Since(begin)
		synced += w.sync(b)
	}
	b.ReportMetric(float64(appended)/float64(synced), "ratio")
	b.ReportMetric(float64(appended.Microseconds()-synced.Microseconds())/float64(b.N), "µs-besides-fdatasync/op")
}

// BenchmarkAction measures the parts of what an action costs its request: Begin, Durable directly after it, and End. It reports the
// medians, and Durable in relation to the median of a write and fdatasync of the same bytes on the same disk. A request that reads its
// inputs between Begin and Durable waits only for the rest.
func BenchmarkAction(b *testing.B) {
	w := newBench(b)
	var begun, durable, ended, synced []time.Duration
	for b.Loop() {
		start := time.Now()
		action := must.Get(w.Begin(b.Context(), record(0)))(b)
		begun = append(begun, time.Since(start))
		start = time.Now()
		must.Do(b, action.Durable(b.Context()))
		durable = append(durable, time.Since(start))
		start = time.Now()
		must.Do(b, action.End(b.Context(), record(0)))
		ended = append(ended, time.Since(start))
		// Wait for the sync of the outcome, so that the disk does nothing else during the next one.
		must.Do(b, w.Append(b.Context(), record(0)))
		synced = append(synced, w.sync(b))
	}
	b.ReportMetric(float64(median(begun).Nanoseconds())/1e3, "µs-begin")
	b.ReportMetric(float64(median(durable).Nanoseconds())/1e3, "µs-durable")
	b.ReportMetric(float64(median(ended).Nanoseconds())/1e3, "µs-end")
	b.ReportMetric(float64(median(durable))/float64(median(synced)), "durable/fdatasync")
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkAppendParallel measures Append with many callers, which share fsyncs.
func BenchmarkAppendParallel(b *testing.B) {
	r := newRegion(b, b.TempDir())
	r.maxBytes = 1 << 30
	w, _ := r.start(b)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := w.Append(b.Context(), record(0)); err != nil {
				b.Error(err)
			}
		}
	})
}
