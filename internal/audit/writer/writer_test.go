package writer_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashVariable); dir != "" {
		appendUntilKilled(dir)
	}
	os.Exit(leaktest.Check(m.Run()))
}

// region has the folders of a writer, a sink and a witness.
type region struct {
	dir  string
	key  *audit.SigningKey
	sink *unreliable
	// witness is the witness of the writers.
	witness sink.Witness
	// maxBytes is the limit of the queues.
	maxBytes int64
	// metrics are those of the last writer.
	metrics *prometheus.Registry
	// sync is the sync of the writers; nil is a real one.
	sync func(*os.File) error
}

// unreliable is a sink that is away while down is true. After partial is set, the next append stores only a part.
type unreliable struct {
	*sink.File
	down, partial atomic.Bool
	// appended, if not nil, is called after each append.
	appended func()
}

func (u *unreliable) Append(ctx context.Context, name string, offset int64, content []byte) error {
	if u.down.Load() {
		return errors.New("the sink is away")
	}
	if u.partial.CompareAndSwap(true, false) {
		if err := u.File.Append(ctx, name, offset, content[:len(content)/2]); err != nil {
			return err
		}
		return errors.New("the connection was lost")
	}
	if u.appended != nil {
		defer u.appended()
	}
	return u.File.Append(ctx, name, offset, content)
}

func newRegion(t testing.TB, dir string) *region {
	t.Helper()
	file := must.Get(sink.NewFile(filepath.Join(dir, "sink")))(t)
	witness := must.Get(sink.NewFileWitness(filepath.Join(dir, "witness")))(t)
	key := must.Get(audit.GenerateKey())(t)
	return &region{dir: dir, key: key, sink: &unreliable{File: file}, witness: witness}
}

func (r *region) queue() string { return filepath.Join(r.dir, "queue") }

// open opens the writer.
func (r *region) open() (*writer.Writer, error) {
	r.metrics = prometheus.NewRegistry()
	config := writer.Config{Dir: r.queue(), Service: "admin", Key: r.key, Log: r.sink, Witness: r.witness, MaxBytes: r.maxBytes,
		Logger: slog.New(slog.DiscardHandler), Metrics: r.metrics}
	if r.sync != nil {
		writer.SetSync(&config, r.sync)
	}
	return writer.Open(config)
}

// start runs a writer and returns a function that stops it.
func (r *region) start(t testing.TB) (w *writer.Writer, stop func()) {
	t.Helper()
	w = must.Get(r.open())(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return w, stop
}

// verify verifies the sink. The queue is checked too.
func (r *region) verify(t testing.TB) *verify.Report {
	t.Helper()
	return r.verifyAt(t, time.Now, r.queue())
}

// verifyAt verifies the sink at another time, with queues.
func (r *region) verifyAt(t testing.TB, now func() time.Time, queues ...string) *verify.Report {
	t.Helper()
	keys := audit.Keys{}
	keys.Trust("admin", r.key)
	in := verify.Input{Log: r.sink.File, Witness: r.witness.(*sink.WitnessLog), Keys: keys, Queues: queues, Now: now}
	return must.Get(verify.Verify(context.Background(), in))(t)
}

func (r *region) noFindings(t testing.TB) *verify.Report {
	t.Helper()
	report := r.verify(t)
	for _, f := range report.Findings {
		t.Errorf("false alarm: %+v", f)
	}
	return report
}

// lines returns the lines of the sink.
func (r *region) lines(t testing.TB) []string {
	t.Helper()
	names := must.Get(r.sink.Writers(t.Context()))(t)
	var lines []string
	for _, name := range names {
		log := must.Get(r.sink.Open(t.Context(), name, 0))(t)
		scanner := bufio.NewScanner(log)
		for scanner.Scan() {
			lines = append(lines, scanner.Text())
		}
		_ = log.Close()
	}
	return lines
}

func record(n int) audit.Record {
	return audit.Record{Person: audit.Person{Name: "ada@example.com"}, Action: "clusters.dump", Object: audit.Object{Kind: "cluster", ID: fmt.Sprint("cluster-", n), Cluster: "uid"},
		Reason: "the customer asked for it", Ticket: "INC-1", Outcome: audit.Succeeded}
}

func TestRecordsReachTheSinkInOneChain(t *testing.T) {
	r := newRegion(t, t.TempDir())
	for range 3 { // restarts continue the chain
		w, stop := r.start(t)
		var wg sync.WaitGroup
		for n := range 300 {
			wg.Go(func() {
				if err := w.Append(t.Context(), record(n)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		stop()
	}
	report := r.noFindings(t)
	if len(report.Chains) != 1 || report.Chains[0].Records != 900 || report.Chains[0].Unconfirmed != 0 || report.Chains[0].Queued != 0 || report.Chains[0].Checkpoints < 8 {
		t.Errorf("the chains are %+v", report.Chains)
	}
}

func TestQueueHasOneProcess(t *testing.T) {
	r := newRegion(t, t.TempDir())
	_, stop := r.start(t)
	if _, err := r.open(); err == nil {
		t.Error("two writers have one queue")
	}
	stop()
	_, stop = r.start(t)
	stop()
}

func TestCheckpointIsDueAfterSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegion(t, t.TempDir())
		w, stop := r.start(t)
		must.Do(t, w.Append(t.Context(), record(1)))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if report := r.noFindings(t); report.Chains[0].Unconfirmed != 1 {
			t.Errorf("after 9 s: %+v", report.Chains[0])
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		report := r.noFindings(t)
		if report.Chains[0].Unconfirmed != 0 || report.Chains[0].Checkpoints != 2 {
			t.Errorf("after 11 s: %+v", report.Chains[0])
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if later := r.noFindings(t); later.Chains[0].Checkpoints != 2 {
			t.Errorf("an idle writer wrote checkpoints: %+v", later.Chains[0])
		}
		stop()
	})
}

// fill appends records until one is rejected, and returns the number of stored ones.
func fill(t *testing.T, w *writer.Writer) (stored int) {
	t.Helper()
	for {
		err := w.Append(t.Context(), record(stored))
		if err == nil {
			stored++
			continue
		}
		if e := apierror.As(err); e.Kind != apierror.Unavailable || e.Reason != writer.ReasonUnavailable || e.RetryAfter == 0 {
			t.Fatalf("the error is %v", err)
		}
		return stored
	}
}

// TestFullQueueRejectsAndLosesNothing takes the sink away until the queue is full. An action that has begun can store its outcome.
func TestFullQueueRejectsAndLosesNothing(t *testing.T) {
	r := newRegion(t, t.TempDir())
	r.maxBytes = writer.MinBytes
	r.sink.down.Store(true)
	w, stop := r.start(t)
	begun := []audit.Action{}
	for range 10 {
		action := must.Get(w.Begin(t.Context(), record(-1)))(t)
		must.Do(t, action.Durable(t.Context()))
		begun = append(begun, action)
	}
	stored := fill(t, w)
	if stored < 30 {
		t.Errorf("only %d records fit into the queue", stored)
	}
	refused := must.Get(w.Begin(t.Context(), record(0)))(t)
	if err := refused.Durable(t.Context()); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("an action began although the queue is full: %v", err)
	}
	if err := refused.End(t.Context(), record(0)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("an action that did not begin has ended: %v", err)
	}
	for _, action := range begun {
		if err := action.End(t.Context(), record(-2)); err != nil {
			t.Errorf("the outcome of an action was not stored: %v", err)
		}
	}
	if report := r.noFindings(t); len(report.Chains) != 0 {
		t.Errorf("the sink has %+v", report.Chains)
	}
	// A restart keeps the queue and its limit.
	stop()
	w, stop = r.start(t)
	fill(t, w)
	r.sink.down.Store(false)
	await(t, "the queue accepts records again", func() bool { return w.Append(t.Context(), record(0)) == nil })
	stop()
	report := r.noFindings(t)
	if got := report.Chains[0]; got.Records < stored+20 || got.Queued != 0 {
		t.Errorf("%d records were stored, the sink has %+v", stored+20, got)
	}
}

func TestDiskFullRejectsAndRecovers(t *testing.T) {
	smalldisk.Run(t, 2<<20, func(t *testing.T, dir string) {
		elsewhere := t.TempDir()
		r := newRegion(t, elsewhere)
		r.sink.down.Store(true)
		small := &region{dir: dir, key: r.key, sink: r.sink, witness: r.witness}
		w, stop := small.start(t)
		must.Do(t, w.Append(t.Context(), record(0)))
		filler := smalldisk.Fill(t, dir)
		stored := 1 + fill(t, w)
		must.Do(t, os.Remove(filler))
		if err := w.Append(t.Context(), record(stored)); err != nil {
			t.Fatalf("after space was freed: %v", err)
		}
		stored++
		r.sink.down.Store(false)
		stop()
		report := small.noFindings(t)
		if report.Chains[0].Records != stored || report.Chains[0].Unconfirmed != 0 {
			t.Errorf("%d records were stored, the sink has %+v", stored, report.Chains[0])
		}
	})
}

func TestInterruptedExportIsCompleted(t *testing.T) {
	r := newRegion(t, t.TempDir())
	r.sink.down.Store(true)
	w, stop := r.start(t)
	for n := range 20 {
		must.Do(t, w.Append(t.Context(), record(n)))
	}
	r.sink.partial.Store(true)
	r.sink.down.Store(false)
	stop()
	if report := r.verify(t); len(report.Findings) == 0 {
		t.Error("the log is complete already")
	}
	_, stop = r.start(t)
	stop()
	if report := r.noFindings(t); report.Chains[0].Records != 20 {
		t.Errorf("the sink has %+v", report.Chains)
	}
}

// TestChangedSinkIsNotContinued changes the sink behind the writer's back: the writer must not append to it.
func TestChangedSinkIsNotContinued(t *testing.T) {
	for reason, change := range map[string]func(content []byte) []byte{
		"a longer log":  func(content []byte) []byte { return append(content, "{}\n"...) },
		"a shorter log": func(content []byte) []byte { return content[:len(content)/2] },
	} {
		t.Run(reason, func(t *testing.T) {
			r := newRegion(t, t.TempDir())
			w, _ := r.start(t)
			path := filepath.Join(r.dir, "sink", w.Name()+".jsonl")
			must.Do(t, w.Append(t.Context(), record(1)))
			await(t, "the record is exported", func() bool { return len(r.noFindings(t).Chains) == 1 && r.verify(t).Chains[0].Records == 1 })
			content := must.Get(os.ReadFile(path))(t)
			changed := change(content)
			must.Do(t, os.WriteFile(path, changed, 0o600))
			if err := w.Append(t.Context(), record(2)); err != nil {
				t.Fatalf("the queue does not store records: %v", err)
			}
			await(t, "a conflict", func() bool { return r.metric(t, "audit_sink_conflict") == 1 })
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, changed) {
				t.Errorf("the writer continued the changed log: %v", err)
			}
		})
	}
}

// metric returns the value of a gauge.
func (r *region) metric(t *testing.T, name string) float64 {
	t.Helper()
	families := must.Get(r.metrics.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("the metric %s does not exist", name)
	return 0
}

// await waits until a condition holds.
func await(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	eventually.Soon(t, condition, func() error {
		if !holds() {
			return errors.New("it does not hold yet")
		}
		return nil
	})

}

// stoppedQueue returns a region whose stopped writer has five records in its queue, with the file and its content. Nothing is exported.
func stoppedQueue(t *testing.T) (r *region, path string, content []byte) {
	t.Helper()
	r = newRegion(t, t.TempDir())
	r.sink.down.Store(true)
	w, stop := r.start(t)
	for n := range 5 {
		must.Do(t, w.Append(t.Context(), record(n)))
	}
	stop()
	paths, err := filepath.Glob(filepath.Join(r.queue(), "*.queue"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	content = must.Get(os.ReadFile(paths[0]))(t)
	return r, paths[0], content
}

// TestDamagedQueueIsNotOpened changes the queue itself. Only the end of a queue can be incomplete after a crash.
func TestDamagedQueueIsNotOpened(t *testing.T) {
	t.Run("an incomplete line at the end", func(t *testing.T) {
		r, path, content := stoppedQueue(t)
		must.Do(t, os.WriteFile(path, append(content, content[:200]...), 0o600))
		r.sink.down.Store(false)
		_, stop := r.start(t)
		stop()
		if report := r.noFindings(t); report.Chains[0].Records != 5 {
			t.Errorf("the sink has %+v", report.Chains)
		}
	})
	t.Run("a changed line", func(t *testing.T) {
		r, path, content := stoppedQueue(t)
		changed := strings.Replace(string(content), "cluster-2", "cluster-9", 1)
		must.Do(t, os.WriteFile(path, []byte(changed), 0o600))
		if _, err := r.open(); !errors.Is(err, writer.ErrDamaged) {
			t.Errorf("opened with %v", err)
		}
	})
	t.Run("a lost name", func(t *testing.T) {
		r, _, _ := stoppedQueue(t)
		must.Do(t, os.Remove(filepath.Join(r.queue(), "writer")))
		if _, err := r.open(); !errors.Is(err, writer.ErrDamaged) {
			t.Errorf("opened with %v", err)
		}
	})
}

func TestStoppedWriterRejects(t *testing.T) {
	r := newRegion(t, t.TempDir())
	w, stop := r.start(t)
	stop()
	if err := w.Append(t.Context(), record(0)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Append(ctx, record(0)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("got %v", err)
	}
}

// discard is a sink without content.
type discard struct{ size atomic.Int64 }

func (d *discard) Size(context.Context, string) (int64, error) { return d.size.Load(), nil }
func (d *discard) Append(_ context.Context, _ string, _ int64, content []byte) error {
	d.size.Add(int64(len(content)))
	return nil
}
func (d *discard) Open(context.Context, string, int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}
func (d *discard) Put(context.Context, string, []byte) error { return nil }
