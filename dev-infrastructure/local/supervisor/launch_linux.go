package supervisor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// child is a Running of a Spec's Program.
type child struct {
	command *exec.Cmd
	exited  chan struct{}
	err     error
}

func (c *child) Pid() int                { return c.command.Process.Pid }
func (c *child) Exited() <-chan struct{} { return c.exited }
func (c *child) Err() error              { return c.err }

// launch starts the program of a spec. The calling goroutine must be locked to its thread, which must exist as long as
// the process.
func launch(spec *Spec, log *os.File) (Running, error) {
	command := exec.Command(spec.Program, spec.Args...)
	command.Env = append(os.Environ(), spec.Env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	started := &child{command: command, exited: make(chan struct{})}
	go func() {
		defer close(started.exited)
		awaitExit(started.Pid())
		// Kill the remaining processes of its group. Its ID cannot belong to another group yet, because the process has
		// not been reaped.
		_ = syscall.Kill(-started.Pid(), syscall.SIGKILL)
		started.err = command.Wait()
	}()
	return started, nil
}

// awaitExit returns when the process has terminated, without reaping it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// descendants returns the children of a process, their children and so on (proc(5)).
func descendants(pid int) []int {
	var found []int
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range threads {
		data, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(data)) {
			if child, err := strconv.Atoi(field); err == nil {
				found = append(append(found, child), descendants(child)...)
			}
		}
	}
	return found
}
