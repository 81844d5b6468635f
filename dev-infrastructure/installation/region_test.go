package installation_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"

	"context"
	"fmt"
	"time"
)

// TestCheckNamesWhatIsMissing checks that the error for an empty checkout names everything that has to be built.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	o := installation.Options{StateDir: t.TempDir(), SourceDir: t.TempDir()}
	err := o.Check()
	if err == nil {
		t.Fatal("an empty checkout has everything")
	}
	for _, want := range []string{"run make images", "build.sh opentofu"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q: %v", want, err)
		}
	}
}

// TestKilledRegionLeavesNothing kills the program of a region with SIGKILL while the pipelines run, and expects that no process of the region
// is left. The region starts again in the same folder.
func TestKilledRegionLeavesNothing(t *testing.T) {
	nightly.Only(t)
	transcript.Outcome(t, transcript.Installation)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	start, state := builtRegion(t, ctx), t.TempDir()
	for round := range 2 {
		process := start(state)
		awaitStatus(t, ctx, fmt.Sprintf("the pipelines of start %d", round+1), state, process, func(status local.Status) bool {
			return slices.ContainsFunc(status.Processes, func(part local.ProcessStatus) bool { return part.Name == "pipelines" })
		})
		process.Kill()
		eventually.Before(ctx, t, "the end of all processes", func() error { return without(state) })
	}
}

// TestEndToEndTestsUseRegion starts a region and runs the end-to-end tests that need nothing but ARM, kubectl and hcpctl against it. They are those
// of a region of processes.
func TestEndToEndTestsUseRegion(t *testing.T) {
	nightly.Only(t)
	transcript.Outcome(t, transcript.Customer)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	state := t.TempDir()
	process := builtRegion(t, ctx)(state)
	awaitStatus(t, ctx, "the region", state, process, func(status local.Status) bool { return status.Phase == local.PhaseReady })

	tests := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=20m", "-v", "-run=^TestClusterLifecycle", "./test/e2e", "-region="+state)
	tests.Dir = sourceDir(t)
	output, err := tests.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
	for _, passed := range []string{"--- PASS: TestClusterLifecycle ", "    --- PASS: TestClusterLifecycle/scale ", "    --- PASS: TestClusterLifecycle/credentials "} {
		if !strings.Contains(string(output), passed) {
			t.Errorf("the output does not have %q", passed)
		}
	}
	transcript.Log(t, transcript.Customer, "the end-to-end tests of customers passed against a region on Kubernetes")
}

// sourceDir returns the folder of the checkout.
func sourceDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.Getwd())(t)
	return must.Get(chart.Root(dir))(t)
}

// builtRegion builds the program and returns a function that starts it with a state folder. The program ends with the test, and
// its data is removed.
func builtRegion(t *testing.T, ctx context.Context) func(state string) *spawn.Process {
	t.Helper()
	program, root := filepath.Join(t.TempDir(), "kubernetes-region"), sourceDir(t)
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/kubernetes-region").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return func(state string) *spawn.Process {
		t.Helper()
		command := exec.Command(program, "--state-dir="+state, "--source-dir="+root)
		command.Stderr = t.Output()
		process := must.Get(spawn.Start(command, syscall.SIGKILL))(t)
		t.Cleanup(func() {
			process.Kill()
			removeData(t, filepath.Join(state, "nodes", "outside"))
		})
		return process
	}
}

// removeData removes what a killed region leaves outside of its state folder, when nothing uses it any more.
func removeData(t *testing.T, outside string) {
	t.Helper()
	data, err := installation.DatabaseDir(outside)
	if err != nil {
		t.Error(err)
	}
	if data == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	eventually.Before(ctx, t, "the end of PostgreSQL", func() error { return without(data) })
	if err := installation.RemoveData(outside); err != nil {
		t.Error(err)
	}
}

// awaitStatus waits until the status of a region satisfies reached. The program must run.
func awaitStatus(t *testing.T, ctx context.Context, what, state string, process *spawn.Process, reached func(local.Status) bool) {
	t.Helper()
	eventually.Before(ctx, t, what, func() error {
		select {
		case <-process.Exited():
			t.Fatalf("the program ended: %v", process.Err())
		default:
		}
		var status local.Status
		if err := control.NewClient(state).Status(ctx, &status); err != nil {
			return err
		}
		if !reached(status) {
			return fmt.Errorf("it is %s: %v", status.Phase, status.Processes)
		}
		return nil
	})
}

// without returns an error that names a process with a folder in its command line.
func without(folder string) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if strings.Contains(string(text), folder) {
			return fmt.Errorf("%s runs %s", file, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return nil
}
