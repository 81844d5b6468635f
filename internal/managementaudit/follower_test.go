package managementaudit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/rotatedlog"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// region has an API server's log and the storage of the audit.
type region struct {
	t                          *testing.T
	logs, queue, sink, witness string
	position                   string
	key                        *audit.SigningKey
}

func newRegion(t *testing.T) *region {
	t.Helper()
	dir := t.TempDir()
	r := &region{t: t, logs: filepath.Join(dir, "logs"), queue: filepath.Join(dir, "queue"), sink: filepath.Join(dir, "sink"),
		witness: filepath.Join(dir, "witness"), position: filepath.Join(dir, "position")}
	for _, folder := range []string{r.logs, r.sink, r.witness} {
		must.Do(t, os.Mkdir(folder, 0o700))
	}
	key := must.Get(audit.GenerateKey())(t)
	r.key = key
	return r
}

// write appends lines to the log.
func (r *region) write(lines ...[]byte) {
	r.t.Helper()
	file := must.Get(os.OpenFile(filepath.Join(r.logs, LogName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(r.t)
	defer file.Close()
	for _, text := range lines {
		must.Get(file.Write(slices.Concat(text, []byte("\n"))))(r.t)
	}
}

// rotate renames the log, as an API server does.
func (r *region) rotate(n int) {
	r.t.Helper()
	must.Do(r.t, os.Rename(filepath.Join(r.logs, LogName), filepath.Join(r.logs, fmt.Sprintf("audit-2026-03-01T08-00-%02d.000.log", n))))
}

// process is a running follower with its writer.
type process struct {
	stop func()
	*Follower
}

// start starts a follower. fail, if not nil, is asked before each record.
func (r *region) start(fail func(audit.Record) error) *process {
	r.t.Helper()
	recorder := must.Get(writer.Open(writer.Config{Dir: r.queue, Service: Service, Key: r.key, Log: sink.FileAt(r.sink), Witness: sink.FileWitnessAt(r.witness),
		MaxBytes: writer.DefaultBytes, Logger: slog.Default(), Metrics: prometheus.NewRegistry()}))(r.t)
	f := must.Get(New(Options{Cluster: "mgmt-1", LogDir: r.logs, PositionFile: r.position, QueueDir: r.queue, Recorder: failing{recorder, fail},
		Metrics: prometheus.NewRegistry(), Log: slog.Default()}))(r.t)
	ctx, cancel := context.WithCancel(r.t.Context())
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	var following, group sync.WaitGroup
	following.Go(func() {
		if err := f.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	group.Go(func() { recorder.Run(writing) })
	return &process{sync.OnceFunc(func() { cancel(); following.Wait(); stopWriting(); group.Wait() }), f}
}

// failing is a Recorder that asks a function before it stores a record.
type failing struct {
	audit.Recorder
	fail func(audit.Record) error
}

func (f failing) Append(ctx context.Context, r audit.Record) error {
	if f.fail != nil {
		if err := f.fail(r); err != nil {
			return err
		}
	}
	return f.Recorder.Append(ctx, r)
}

// records verifies the chains and returns the requests of the records, and the codes of gaps.
func (r *region) records() []string {
	r.t.Helper()
	log := must.Get(sink.OpenFile(r.sink))(r.t)
	witness := must.Get(sink.OpenFileWitness(r.witness))(r.t)
	keys := filepath.Join(r.t.TempDir(), "keys")
	public := must.Get(r.key.PublicPEM())(r.t)
	must.Do(r.t, errors.Join(os.Mkdir(keys, 0o700), os.WriteFile(filepath.Join(keys, Service+".pem"), public, 0o600)))
	known := must.Get(audit.LoadKeys(keys))(r.t)
	report, err := verify.Verify(r.t.Context(), verify.Input{Log: log, Witness: witness, Keys: known, Queues: []string{r.queue}})
	if err != nil || len(report.Findings) > 0 {
		r.t.Fatalf("%v, findings %+v", err, report)
	}
	snapshot := must.Get(writer.ReadQueue(r.queue))(r.t)
	var requests []string
	for text := range strings.Lines(string(snapshot.Content)) {
		parsed := must.Get(audit.ParseLine([]byte(strings.TrimSuffix(text, "\n"))))(r.t)
		if parsed.Record != nil && parsed.Record.Request != "" {
			requests = append(requests, parsed.Record.Request)
		} else if parsed.Record != nil {
			requests = append(requests, parsed.Record.Code)
		}
	}
	return requests
}

func (r *region) await(want ...string) {
	r.t.Helper()
	eventually.Soon(r.t, "all events have a record", func() error {
		if got := r.records(); !slices.Equal(got, want) {
			return fmt.Errorf("records of %q, want %q", got, want)
		}
		return nil
	})

}

// TestFollowerContinues: each event has one record, in their order, across rotations and restarts, also of files that were rotated
// while no follower ran. An incomplete line waits for its end.
func TestFollowerContinues(t *testing.T) {
	r := newRegion(t)
	r.write(line("a", nil), line("read", func(e map[string]any) { e["verb"] = "get" }))
	p := r.start(nil)
	defer p.stop()
	r.await("a")
	r.write(line("b", nil))
	r.await("a", "b")
	r.rotate(1)
	r.write(line("c", nil))
	r.await("a", "b", "c")
	p.stop()

	r.write(line("d", nil))
	r.rotate(2)
	r.write(line("e", nil))
	r.rotate(3)
	whole := line("f", nil)
	r.write(whole[:100])
	must.Do(t, os.Truncate(filepath.Join(r.logs, LogName), 100))
	p = r.start(nil)
	defer p.stop()
	r.await("a", "b", "c", "d", "e")
	r.write(whole[100:])
	r.await("a", "b", "c", "d", "e", "f")
}

// TestKilledFollowerRepeatsNothing: the process ends after it stored records and before it stored its position.
func TestKilledFollowerRepeatsNothing(t *testing.T) {
	r := newRegion(t)
	r.write(line("a", nil), line("b", nil), line("c", nil))
	p := r.start(nil)
	defer p.stop()
	r.await("a", "b", "c")
	p.stop()
	for _, kept := range []string{"", `{"inode":`} {
		must.Do(t, os.WriteFile(r.position, []byte(kept), 0o600))
		p = r.start(nil)
		defer p.stop()
		r.write(line("d"+kept, nil))
		if kept == "" {
			r.await("a", "b", "c", "d")
		} else {
			r.await("a", "b", "c", "d", "d"+kept)
		}
		p.stop()
	}
}

// TestFullQueueDelaysEvents: while records cannot be stored, the position does not move.
func TestFullQueueDelaysEvents(t *testing.T) {
	r := newRegion(t)
	var mu sync.Mutex
	full := true
	refused := make(chan struct{}, 1)
	p := r.start(func(record audit.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if full && record.Request == "b" {
			select {
			case refused <- struct{}{}:
			default:
			}
			return errors.New("the queue is full")
		}
		return nil
	})
	defer p.stop()
	r.write(line("a", nil), line("b", nil), line("c", nil))
	<-refused
	r.await("a")
	mu.Lock()
	full = false
	mu.Unlock()
	r.await("a", "b", "c")
}

// TestMissingEventsAreRecorded: files that were removed before they were read, changed files and unreadable lines.
func TestMissingEventsAreRecorded(t *testing.T) {
	r := newRegion(t)
	r.write(line("a", nil))
	p := r.start(nil)
	defer p.stop()
	r.await("a")
	eventually.Soon(t, "the position after the event is stored", func() error {
		at, err := rotatedlog.Load(r.position)
		if err == nil && at.Offset == 0 {
			err = fmt.Errorf("it is %+v", at)
		}
		return err
	})

	p.stop()
	must.Do(t, os.Remove(filepath.Join(r.logs, LogName)))
	r.write(line("b", nil), line("c", nil)) // possibly with the inode of the removed file
	p = r.start(nil)
	defer p.stop()
	r.await("a", "EventsMissingRemoved", "b", "c")
	r.write([]byte("{"), line("long", func(e map[string]any) { e["userAgent"] = strings.Repeat("x", maxLine) }), line("d", nil))
	r.await("a", "EventsMissingRemoved", "b", "c", "EventsMissingUnreadable", "EventsMissingUnreadable", "d")
	// A user agent as long as the API server permits does not hide the event.
	r.write(line("e", func(e map[string]any) { e["userAgent"] = strings.Repeat("x", 1<<20) }))
	r.await("a", "EventsMissingRemoved", "b", "c", "EventsMissingUnreadable", "EventsMissingUnreadable", "d", "e")
}
