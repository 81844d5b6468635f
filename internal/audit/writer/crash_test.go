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
)

// crashVariable is the environment variable with the folder of the process that the test kills.
const crashVariable = "HCPMESH_TEST_AUDIT_CRASH"

// appendUntilKilled appends records from several goroutines, and prints the number of each record that was acknowledged.
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
	for range 4 {
		wg.Go(func() {
			for {
				id := rand.Uint64()
				r := record(0)
				r.Object.ID = fmt.Sprintf("acknowledged-%016x", id)
				if w.Append(context.Background(), r) == nil {
					_, err := os.Stdout.WriteString(r.Object.ID + "\n")
					fail(err)
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
// write, the fsync, the acknowledgement and the export. Each acknowledged record must be in the sink after the next start, and the
// verification must not report anything.
func TestKilledWriterLosesNothing(t *testing.T) {
	r := newRegion(t, t.TempDir())
	if err := r.key.Create(filepath.Join(r.dir, "key")); err != nil {
		t.Fatal(err)
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	var acknowledged []string
	for round := range rounds {
		acknowledged = append(acknowledged, killAfter(t, r.dir, 1+round*17)...)
	}
	r.maxBytes = writer.MinBytes * 4
	_, stop := r.start(t)
	stop()
	report := r.noFindings(t)
	if len(report.Chains) != 1 || report.Chains[0].Unsigned != 0 || report.Chains[0].Records < len(acknowledged) {
		t.Errorf("%d records were acknowledged, the chains are %+v", len(acknowledged), report.Chains)
	}
	stored := strings.Join(r.lines(t), "\n")
	for _, id := range acknowledged {
		if strings.Count(stored, id) != 1 {
			t.Errorf("%s is in the sink %d times", id, strings.Count(stored, id))
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
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var lines []string
	scanner := bufio.NewScanner(output)
	for scanner.Scan() {
		lines = append(lines, scanner.Text())
		if len(lines) == records {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = child.Wait() // it was killed
	if len(lines) < records {
		t.Fatalf("the process ended after %d records", len(lines))
	}
	return lines
}
