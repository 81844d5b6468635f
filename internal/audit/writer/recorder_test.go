package writer_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRecorderRejectsUntilQueueCanBeOpened starts a recorder with a damaged queue, which is then moved away.
func TestRecorderRejectsUntilQueueCanBeOpened(t *testing.T) {
	r := newRegion(t, t.TempDir())
	must.Do(t, os.MkdirAll(r.queue(), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(r.queue(), "writer"), []byte("nobody\n"), 0o600))
	metrics := prometheus.NewPedanticRegistry()
	recorder := writer.NewRecorder(t.Context(), writer.Config{Dir: r.queue(), Service: "admin", Key: r.key, Log: r.sink, Witness: r.witness,
		Logger: slog.New(slog.DiscardHandler), Metrics: metrics})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); recorder.Run(ctx) }()
	stop := sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)

	unusable := func(want string) {
		t.Helper()
		expected := "# HELP audit_queue_unusable 1 if the audit queue cannot be opened, so that requests that must be audited are rejected, else 0.\n" +
			"# TYPE audit_queue_unusable gauge\naudit_queue_unusable " + want + "\n"
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(expected), "audit_queue_unusable"); err != nil {
			t.Error(err)
		}
	}
	unusable("1")
	if err := recorder.Append(t.Context(), record(0)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("appended with %v", err)
	}
	if _, err := recorder.Begin(t.Context(), record(0)); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("begun with %v", err)
	}

	must.Do(t, os.Rename(r.queue(), r.queue()+".damaged"))
	eventually.Soon(t, "the queue is open", func() error { return recorder.Append(t.Context(), record(1)) })
	begun := must.Get(recorder.Begin(t.Context(), record(2)))(t)
	must.Do(t, begun.End(t.Context(), record(2)))
	unusable("0")
	stop()
	if report := r.noFindings(t); len(report.Chains) != 1 || report.Chains[0].Records != 3 {
		t.Errorf("the sink has %+v", report.Chains)
	}
}
