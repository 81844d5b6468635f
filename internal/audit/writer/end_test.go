package writer_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// forge appends a record with the right hashes to the log of a writer in the sink.
func (r *region) forge(t *testing.T, name string) {
	t.Helper()
	all := r.lines(t)
	last := must.Get(audit.ParseLine([]byte(all[len(all)-1])))(t)
	encoded := must.Get(audit.EncodeRecord(record(666)))(t)
	line, _ := audit.AppendRecord(nil, audit.Head{Writer: name, Time: time.Now()}, last.At(0, 0), audit.Entry{Record: encoded})
	size, err := r.sink.Size(t.Context(), name)
	must.Do(t, errors.Join(err, r.sink.File.Append(t.Context(), name, size, line)))
}

// TestStoppedWriterClosesItsChain stops a writer that has an open action, and starts it again: its outcome follows a checkpoint. Without
// one, nobody can continue the chain.
func TestStoppedWriterClosesItsChain(t *testing.T) {
	r := newRegion(t, t.TempDir())
	w, stop := r.start(t)
	action := must.Get(w.Begin(t.Context(), record(1)))(t)
	must.Do(t, action.Durable(t.Context()))
	for range 2 {
		stop()
		if report := r.noFindings(t); !report.Chains[0].Closed {
			t.Errorf("the writer did not close its chain: %+v", report.Chains)
		}
		w, stop = r.start(t)
	}
	stop()
	closed := false
	for n, text := range r.lines(t) {
		line := must.Get(audit.ParseLine([]byte(text)))(t)
		if closed && line.Kind != audit.CheckpointLine {
			t.Errorf("line %d follows the end of the chain: %s", n+1, text)
		}
		closed = line.End
	}
	r.forge(t, w.Name())
	if report := r.verifyAt(t, time.Now); len(report.Findings) != 1 || report.Findings[0].Problem != verify.Forged {
		t.Errorf("a record behind the end of a chain: %+v", report.Findings)
	}
}

// TestKilledWriterIsNoFinding copies the folders of a writer whose last record has no checkpoint yet, as its kill leaves them.
func TestKilledWriterIsNoFinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegion(t, t.TempDir())
		w, stop := r.start(t)
		must.Do(t, w.Append(t.Context(), record(1)))
		synctest.Wait()
		killed := filepath.Join(t.TempDir(), "killed")
		must.Do(t, os.CopyFS(killed, os.DirFS(r.dir)))
		stop()
		after := newRegion(t, killed)
		after.key = r.key
		later := func() time.Time { return time.Now().Add(time.Hour) }
		if report := after.verifyAt(t, later, after.queue()); len(report.Findings) != 0 || report.Chains[0].Unconfirmed != 1 {
			t.Errorf("with its queue: %+v", report)
		}
		if report := after.verifyAt(t, later); len(report.Findings) != 1 || report.Findings[0].Problem != verify.Unconfirmed {
			t.Errorf("without its queue: %+v", report)
		}
		_, stop = after.start(t)
		stop()
		if report := after.verifyAt(t, later); len(report.Findings) != 0 || report.Chains[0].Unconfirmed != 0 || report.Chains[0].Records != 1 {
			t.Errorf("after its next start: %+v", report)
		}
	})
}

// TestIdleWriterReportsForgedRecord appends a record to the log of a writer that has nothing to export.
func TestIdleWriterReportsForgedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegion(t, t.TempDir())
		w, stop := r.start(t)
		time.Sleep(writer.CheckEvery + time.Second)
		if conflict := r.metric(t, "audit_sink_conflict"); conflict != 0 {
			t.Error("an unchanged sink is a conflict")
		}
		r.forge(t, w.Name())
		time.Sleep(writer.CheckEvery)
		synctest.Wait()
		if conflict := r.metric(t, "audit_sink_conflict"); conflict != 1 {
			t.Error("the writer did not report the forged record as a conflict")
		}
		stop()
	})
}

// TestLateExportIsConfirmed exports several chunks of a queue after the sink was away. Without the queue, a verification after each one must not
// find records whose checkpoint is late.
func TestLateExportIsConfirmed(t *testing.T) {
	r := newRegion(t, t.TempDir())
	r.sync = func(*os.File) error { return nil }
	r.sink.down.Store(true)
	w, stop := r.start(t)
	var wg sync.WaitGroup
	for n := range 2500 {
		wg.Go(func() {
			if err := w.Append(t.Context(), record(n)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	stop()
	appends := 0
	r.sink.appended = func() {
		appends++
		if report := r.verifyAt(t, func() time.Time { return time.Now().Add(time.Hour) }); len(report.Findings) > 0 {
			t.Errorf("after append %d: %+v", appends, report.Findings)
		}
	}
	r.sink.down.Store(false)
	_, stop = r.start(t)
	stop()
	if report := r.noFindings(t); appends < 2 || report.Chains[0].Records != 2500 {
		t.Errorf("after %d appends the sink has %+v", appends, report.Chains)
	}
}
