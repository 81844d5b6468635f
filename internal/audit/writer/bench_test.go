package writer_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
)

// BenchmarkAppend measures what an audit record costs a request besides the fsync. It compares one Append with one write and fsync
// of the same bytes on the same disk, in alternation, and reports the ratio of the sums. The target is 0.2 ms besides the fsync.
func BenchmarkAppend(b *testing.B) {
	dir := b.TempDir()
	key, err := audit.GenerateKey()
	if err != nil {
		b.Fatal(err)
	}
	d := &discard{}
	w, err := writer.Open(writer.Config{Dir: filepath.Join(dir, "queue"), Service: "admin", Key: key, Log: d, Witness: d, MaxBytes: 1 << 30,
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	bare, err := os.OpenFile(filepath.Join(dir, "bare"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer bare.Close()
	encoded, err := audit.EncodeRecord(record(0))
	if err != nil {
		b.Fatal(err)
	}
	line, _ := audit.AppendRecord(nil, w.Name(), audit.Position{}, time.Now(), encoded)
	var appended, synced time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := w.Append(ctx, record(0)); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, err := bare.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := bare.Sync(); err != nil {
			b.Fatal(err)
		}
		appended += middle.Sub(begin)
		synced += time.Since(middle)
	}
	b.ReportMetric(float64(appended)/float64(synced), "ratio")
	b.ReportMetric(float64(appended.Microseconds()-synced.Microseconds())/float64(b.N), "µs-besides-fsync/op")
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
