// Package spawn starts child processes that do not outlive this one, however this one ends: the kernel signals a child
// when the thread that forked it is gone (prctl(2), PR_SET_PDEATHSIG), so each child is forked and waited for by one
// goroutine that keeps its thread for as long as the child lives. Where the kernel has no such signal a child is started
// as any other, and its owner has to find what an earlier run has left.
package spawn

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a child that was started.
type Process struct {
	process *os.Process
	exited  chan struct{}
	err     error
}

// Start starts a command in a process group of its own, and has the kernel send it a signal when this process is gone. It
// must not be waited for but through the Process.
func Start(command *exec.Cmd, death syscall.Signal) (*Process, error) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = true
	dieWithParent(command.SysProcAttr, death)
	p := &Process{exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with this goroutine, which is after the child, and not before.
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

// PID is the child's process id.
func (p *Process) PID() int { return p.process.Pid }

// Signal sends the child a signal; an error says that it has ended already.
func (p *Process) Signal(signal syscall.Signal) error { return p.process.Signal(signal) }

// Exited is closed when the child has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err says how the child has ended, as exec.Cmd's Wait does. It waits for that.
func (p *Process) Err() error {
	<-p.exited
	return p.err
}

// Kill ends the child at once, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.process.Kill()
	<-p.exited
}
