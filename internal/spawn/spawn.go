// Package spawn starts child processes that do not outlive this process, even if this process crashes. The kernel signals a child
// when the thread that forked it exits (prctl(2), PR_SET_PDEATHSIG). Therefore one goroutine, locked to its thread, forks a child
// and waits for it. On systems without this signal, children may outlive a crash and the owner must find them after a restart.
// Programs that start servers as children reserve their ports here.
package spawn

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a started child process.
type Process struct {
	process *os.Process
	exited  chan struct{}
	err     error
}

// Start starts a command in its own process group. The kernel sends it the signal when this process terminates. Wait for it only
// through the returned Process.
func Start(command *exec.Cmd, death syscall.Signal) (*Process, error) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true
	dieWithParent(command.SysProcAttr, death)
	p := &Process{exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Never unlocked: the thread exits with this goroutine, after the child.
		runtime.LockOSThread()
		if err := command.Start(); err != nil {
			started <- err
			return
		}
		p.process = command.Process
		started <- nil
		defer close(p.exited)
		p.err = command.Wait()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Run runs a command to its end and returns the result, like Run of exec.Cmd. If ctx ends before, Run kills the child and returns the
// error of ctx.
func Run(ctx context.Context, command *exec.Cmd) error {
	process, err := Start(command, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-process.Exited():
		return process.Err()
	case <-ctx.Done():
		process.Kill()
		return ctx.Err()
	}
}

// PID returns the process ID of the child.
func (p *Process) PID() int { return p.process.Pid }

// Signal sends a signal to the child. It returns an error if the child has terminated.
func (p *Process) Signal(signal syscall.Signal) error { return p.process.Signal(signal) }

// Exited returns a channel that is closed when the child has terminated.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err waits until the child has terminated and returns the result, like Wait of exec.Cmd.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}

// Kill sends SIGKILL to the child and waits until it has terminated.
func (p *Process) Kill() {
	_ = p.process.Kill()
	<-p.exited
}
