package spawn_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
)

// role has the test binary become another process of a test.
const role = "HCPMESH_TEST_SPAWN"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "parent":
		beParent()
	case "child":
		_, _ = os.Stdout.WriteString("child\n")
		select {}
	}
	os.Exit(leaktest.Check(m.Run()))
}

func self(as string) *exec.Cmd {
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(), role+"="+as)
	return command
}

// beParent starts a child that writes to where this process does, and lets the goroutine that did so end.
func beParent() {
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

// TestChildDiesWithItsParent kills a process and expects that its child goes, too: the pipe that the child holds is closed.
func TestChildDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux's parent-death signal")
	}
	parent := self("parent")
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	if line, err := lines.ReadString('\n'); err != nil || line != "child\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("the child said %q, %v", rest, err)
	}
	_ = parent.Wait()
}

func TestEndIsTold(t *testing.T) {
	var failed *exec.ExitError
	process, err := spawn.Start(exec.Command("false"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Err(); !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	if process, err = spawn.Start(exec.Command("cat", "/dev/zero"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	process.Kill()
	if err := process.Err(); err == nil {
		t.Error("what was killed ended well")
	}
	if _, err := spawn.Start(exec.Command("/no/such/program"), syscall.SIGKILL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}
