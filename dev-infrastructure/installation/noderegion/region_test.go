package noderegion_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation/noderegion"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"

	"context"
	"fmt"
	"time"
)

// all makes the tests run, which need built images. make deploy-test builds them before.
var all = flag.Bool("nodes-all", false, "run the tests of regions on nodes, with the images in .build/images")

// timeout bounds a test.
const timeout = 10 * time.Minute

// TestCheckNamesWhatIsMissing checks that the error for an empty checkout names everything that has to be built.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	o := noderegion.Options{StateDir: t.TempDir(), SourceDir: t.TempDir()}
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
	if !*all {
		t.Skip("it needs the images: make deploy-test runs it")
	}
	transcript.Outcome(t, transcript.Installation)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := chart.Root(dir)
	if err != nil {
		t.Fatal(err)
	}
	program, state := filepath.Join(t.TempDir(), "kubernetes-region"), t.TempDir()
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", program, "../cmd/kubernetes-region").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for round := range 2 {
		command := exec.Command(program, "--state-dir="+state, "--source-dir="+root)
		command.Stderr = t.Output()
		process, err := spawn.Start(command, syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(process.Kill)
		eventually.Before(ctx, t, fmt.Sprintf("the pipelines of start %d", round+1), func() error {
			select {
			case <-process.Exited():
				t.Fatalf("the program ended: %v", process.Err())
			default:
			}
			var status local.Status
			if err := control.NewClient(state).Status(ctx, &status); err != nil {
				return err
			}
			for _, part := range status.Processes {
				if part.Name == "pipelines" {
					return nil
				}
			}
			return fmt.Errorf("it is %s: %v", status.Phase, status.Processes)
		})
		process.Kill()
		eventually.Before(ctx, t, "the end of all processes", func() error { return without(state) })
	}
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
