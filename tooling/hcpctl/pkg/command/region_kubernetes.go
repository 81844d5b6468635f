package command

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/spf13/cobra"
)

// The platforms of a region.
const (
	onProcesses  = "processes"
	onKubernetes = "kubernetes"
)

// forProcesses are the flags that a region on Kubernetes does not have.
var forProcesses = []string{"config", "base-port", "fidelity", "time-scale", "log-level", "faults", "without", "with", "no-build"}

// checkPlatform returns an error for an unknown platform, and for a flag that the platform does not have.
func (o *upOptions) checkPlatform(c *cobra.Command) error {
	switch o.on {
	case onProcesses:
		return nil
	case onKubernetes:
	default:
		return fmt.Errorf("--on: %q is not one of %s, %s", o.on, onProcesses, onKubernetes)
	}
	for _, name := range forProcesses {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s is for regions of processes: a region on Kubernetes has the configuration in config/clouds/public/local.yaml", name)
		}
	}
	return nil
}

// runOnKubernetes builds and runs the program of a region on Kubernetes until the context ends or a stop is requested. The program terminates
// with this process. It calls ready once the region is ready.
func (e *environment) runOnKubernetes(c *cobra.Command, ready func() error) error {
	dir, err := e.stateFolder()
	if err != nil {
		return err
	}
	source, err := local.FindSource()
	if err != nil {
		return err
	}
	program := filepath.Join(source, ".build", "nodes", "kubernetes-region")
	build := exec.CommandContext(c.Context(), "go", "build", "-o", program, "./dev-infrastructure/installation/cmd/kubernetes-region")
	build.Dir = source
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the program of the region: %w: %s", err, output)
	}
	var problems strings.Builder
	command := exec.Command(program, "--state-dir="+dir, "--source-dir="+source)
	command.Stderr = &problems
	process, err := spawn.Start(command, syscall.SIGTERM)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(c.Context(), func() { _ = process.Signal(syscall.SIGTERM) })
	defer stop()
	failed := e.awaitKubernetes(c.Context(), dir, process)
	if failed == nil && ready != nil {
		failed = ready()
	}
	if failed != nil {
		_ = process.Signal(syscall.SIGTERM)
	}
	if err := process.Err(); err != nil {
		return errors.New(strings.TrimSpace(problems.String()))
	}
	if errors.Is(failed, context.Canceled) {
		return nil
	}
	return failed
}

// awaitKubernetes waits until the region is ready. It returns nil when the program has ended before.
func (e *environment) awaitKubernetes(ctx context.Context, dir string, process *spawn.Process) error {
	for {
		var status local.Status
		if control.NewClient(dir).Status(ctx, &status) == nil && status.Phase.Running() && status.Pid == process.PID() {
			return nil
		}
		select {
		case <-process.Exited():
			return context.Canceled
		default:
		}
		if err := backoff.Sleep(ctx, redrawEvery); err != nil {
			return err
		}
	}
}
