// Package audittest runs an audit writer in a test, with a sink and a witness in folders, and returns what it stored. CheckSink and CheckWitness are the
// conformance suite of sinks and witnesses.
package audittest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
)

// Trail is an audit of a test.
type Trail struct {
	*writer.Writer
	dir     string
	log     *gate
	witness *sink.WitnessLog
	keys    audit.Keys
	stop    func()
}

// gate is a sink that is away while closed is true.
type gate struct {
	*sink.File
	closed atomic.Bool
}

func (g *gate) Append(ctx context.Context, name string, offset int64, content []byte) error {
	if g.closed.Load() {
		return errors.New("the audit sink is away")
	}
	return g.File.Append(ctx, name, offset, content)
}

// New runs a writer of a service until the test ends. The limit of its queue is limit bytes; 0 is the default.
func New(t testing.TB, service string, limit int64) *Trail {
	t.Helper()
	dir := t.TempDir()
	key, err := audit.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	file, err := sink.NewFile(filepath.Join(dir, "sink"))
	if err != nil {
		t.Fatal(err)
	}
	trail := &Trail{dir: dir, log: &gate{File: file}, keys: audit.Keys{}}
	trail.keys.Trust(service, key)
	if trail.witness, err = sink.NewFileWitness(filepath.Join(dir, "witness")); err != nil {
		t.Fatal(err)
	}
	trail.Writer, err = writer.Open(writer.Config{Dir: trail.queue(), Service: service, Key: key, Log: trail.log, Witness: trail.witness, MaxBytes: limit,
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); trail.Run(ctx) }()
	trail.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(trail.stop)
	return trail
}

func (a *Trail) queue() string { return filepath.Join(a.dir, "queue") }

// SinkAway makes the sink unavailable, or available again.
func (a *Trail) SinkAway(away bool) { a.log.closed.Store(away) }

// Reader reads the sink.
func (a *Trail) Reader() sink.Reader { return a.log.File }

// Witness reads the witness.
func (a *Trail) Witness() sink.WitnessReader { return a.witness }

// Stop stops the writer, after which the sink has all records unless it is away.
func (a *Trail) Stop() { a.stop() }

// Records returns all records in the order of the chain, from the queue. It fails the test if the queue released segments.
func (a *Trail) Records(t testing.TB) []audit.Record {
	t.Helper()
	snapshot, err := writer.ReadQueue(a.queue())
	if err != nil {
		t.Fatal(err)
	}
	if snapshot.Offset != 0 {
		t.Fatal("the queue does not have all records")
	}
	return recordsOf(t, snapshot.Content)
}

// Exported returns the records that the sink has, in the order of the chain.
func (a *Trail) Exported(t testing.TB) []audit.Record {
	t.Helper()
	log, err := a.log.Open(context.WithoutCancel(t.Context()), a.Name(), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	content, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	return recordsOf(t, content[:bytes.LastIndexByte(content, '\n')+1])
}

func recordsOf(t testing.TB, content []byte) []audit.Record {
	t.Helper()
	var records []audit.Record
	for text := range bytes.Lines(content) {
		line, err := audit.ParseLine(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		if line.Record != nil {
			records = append(records, *line.Record)
		}
	}
	return records
}

// Verify stops the writer and fails the test if the chain in the sink is not complete and valid.
func (a *Trail) Verify(t testing.TB) *verify.Report {
	t.Helper()
	a.stop()
	report, err := verify.Verify(context.Background(), verify.Input{Log: a.log.File, Witness: a.witness, Keys: a.keys, Queues: []string{a.queue()}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		t.Errorf("audit: %+v", f)
	}
	return report
}
