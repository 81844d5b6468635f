package writer_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// crashVariable is the environment variable with the folder of the process that the test kills.
const crashVariable = "HCPMESH_TEST_AUDIT_CRASH"

// appendUntilKilled appends records and executes actions in several goroutines. It prints the number of each record that was acknowledged,
// and of each action when it may have an effect and when it has ended.
func appendUntilKilled(dir string) {
	key, err := audit.LoadKey(filepath.Join(dir, "key"))
	fail(err)
	file, err := sink.NewFile(filepath.Join(dir, "sink"))
	fail(err)
	witness, err := sink.NewFileWitness(filepath.Join(dir, "witness"))
	fail(err)
	w, err := writer.Open(writer.Config{Dir: filepath.Join(dir, "queue"), Service: "admin", Key: key, Log: file, Witness: witness, MaxBytes: writer.MinBytes * 4,
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	fail(err)
	go w.Run(context.Background())
	var wg sync.WaitGroup
	printed := func(id string) {
		_, err := os.Stdout.WriteString(id + "\n")
		fail(err)
	}
	for range 2 {
		wg.Go(func() {
			for {
				r := record(0)
				r.Object.ID = fmt.Sprintf("acknowledged-%016x", rand.Uint64())
				if w.Append(context.Background(), r) == nil {
					printed(r.Object.ID)
				}
			}
		})
		wg.Go(func() {
			for {
				r := record(0)
				id := fmt.Sprintf("%016x", rand.Uint64())
				r.Object.ID = "action-" + id
				action, err := w.Begin(context.Background(), r)
				fail(err)
				if action.Durable(context.Background()) == nil {
					printed("effect-" + id)
				}
				if action.End(context.Background(), r) == nil {
					printed("ended-" + id)
				}
			}
		})
	}
	wg.Wait()
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestKilledWriterLosesNothing kills a process with SIGKILL while it appends, several times, at arbitrary instructions: between the
// write, the sync, the effect, the outcome, the acknowledgement and the export. After the next start, the sink must have each
// acknowledged record, the beginning and one outcome of each action with an effect, and the real outcome of each that ended. The
// verification must not report anything.
func TestKilledWriterLosesNothing(t *testing.T) {
	r := newRegion(t, t.TempDir())
	must.Do(t, r.key.Create(filepath.Join(r.dir, "key")))
	rounds := nightly.Choose(4, 12)
	var acknowledged []string
	for round := range rounds {
		acknowledged = append(acknowledged, killAfter(t, r.dir, 1+round*17)...)
	}
	r.maxBytes = writer.MinBytes * 4
	_, stop := r.start(t)
	stop()
	report := r.noFindings(t)
	if len(report.Chains) != 1 || report.Chains[0].Unconfirmed != 0 || report.Chains[0].Records < len(acknowledged)/2 {
		t.Errorf("%d records were acknowledged, the chains are %+v", len(acknowledged), report.Chains)
	}
	stored := strings.Join(r.lines(t), "\n")
	starts, outcomes := startsAndOutcomes(t, stored)
	byID := map[string]uint64{}
	for sequence, start := range starts {
		byID[strings.TrimPrefix(start.Record.Object.ID, "action-")] = sequence
		if len(outcomes[sequence]) != 1 {
			t.Errorf("line %d has the outcomes %+v", sequence, outcomes[sequence])
		}
	}
	for _, line := range acknowledged {
		switch kind, id, _ := strings.Cut(line, "-"); kind {
		case "acknowledged":
			if strings.Count(stored, line) != 1 {
				t.Errorf("%s is in the sink %d times", line, strings.Count(stored, line))
			}
		case "effect":
			if byID[id] == 0 {
				t.Errorf("the sink does not have the action %s, which may have had an effect", id)
			}
		case "ended":
			if got := outcomes[byID[id]]; len(got) != 1 || got[0].Record.Outcome != audit.Succeeded {
				t.Errorf("the action %s succeeded, its outcomes are %+v", id, got)
			}
		}
	}
}

// killAfter starts a process, kills it after a number of acknowledged records, and returns all acknowledged records.
func killAfter(t *testing.T, dir string, records int) []string {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), crashVariable+"="+dir)
	child.Stderr = os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output := must.Get(child.StdoutPipe())(t)
	must.Do(t, child.Start())
	var lines []string
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
		if len(lines) == records {
			must.Do(t, child.Process.Kill())
		}
	}
	_ = child.Wait() // it was killed
	if len(lines) < records {
		t.Fatalf("the process ended after %d records", len(lines))
	}
	return lines
}
