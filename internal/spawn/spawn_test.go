package spawn_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// role is the environment variable that selects what the test binary does as a child process.
const role = "HCPMESH_TEST_SPAWN"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "parent":
		runParent()
	case "child":
		_, _ = os.Stdout.WriteString("child\n")
		select {}
	}
	os.Exit(leaktest.Check(m.Run()))
}

// self returns a command that runs the test binary in a role.
func self(as string) *exec.Cmd {
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), role+"="+as)
	return command
}

// runParent starts a child with the same standard output, from a goroutine that ends afterwards.
func runParent() {
	done := make(chan error)
	go func() {
		child := self("child")
		child.Stdout = os.Stdout
		_, err := spawn.Start(child, syscall.SIGKILL)
		done <- err
	}()
	if err := <-done; err != nil {
		os.Exit(1)
	}
	select {}
}

// TestChildTerminatesWithItsParent kills a process and expects its child to terminate: the pipe of the child is closed.
func TestChildTerminatesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's parent-death signal")
	}
	parent := self("parent")
	output := must.Get(parent.StdoutPipe())(t)
	must.Do(t, parent.Start())
	lines := bufio.NewReader(output)
	if line, err := lines.ReadString('\n'); err != nil || line != "child\n" {
		t.Fatalf("the child wrote %q, %v", line, err)
	}
	must.Do(t, parent.Process.Kill())
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("the child wrote %q, %v", rest, err)
	}
	_ = parent.Wait()
}

func TestErrReturnsHowTheChildTerminated(t *testing.T) {
	var failed *exec.ExitError
	process := must.Get(spawn.Start(exec.Command("false"), syscall.SIGKILL))(t)
	if err := process.Err(); !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Errorf("terminated with %v", err)
	}
	process = must.Get(spawn.Start(exec.Command("cat", "/dev/zero"), syscall.SIGKILL))(t)
	process.Kill()
	if err := process.Err(); err == nil {
		t.Error("a killed process terminated without an error")
	}
	if _, err := spawn.Start(exec.Command("/no/such/program"), syscall.SIGKILL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that does not exist: %v", err)
	}
}

// TestRun checks the result of a command that ends, and that the end of the context kills a command that does not.
func TestRun(t *testing.T) {
	if err := spawn.Run(t.Context(), exec.Command("true")); err != nil {
		t.Error(err)
	}
	var failed *exec.ExitError
	if err := spawn.Run(t.Context(), exec.Command("false")); !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Errorf("a failed command returned %v", err)
	}
	if err := spawn.Run(t.Context(), exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that does not exist: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	child := self("child")
	output := must.Get(child.StdoutPipe())(t)
	result := make(chan error)
	go func() { result <- spawn.Run(ctx, child) }()
	must.Get(bufio.NewReader(output).ReadString('\n'))(t)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled command returned %v", err)
	}
}
