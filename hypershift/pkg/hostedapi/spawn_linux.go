package hostedapi

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts processes that the kernel kills when this one is gone. The kernel's parent-death signal is tied to
// the thread that forked, not to the process, so all forks happen on one thread that lives as long as the spawner.
type spawner struct {
	requests chan spawn
	done     chan struct{}
}

type spawn struct {
	command *exec.Cmd
	result  chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawn), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and only then
		for request := range s.requests {
			request.result <- request.command.Start()
		}
	}()
	return s
}

func (s *spawner) start(command *exec.Cmd) error {
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	request := spawn{command: command, result: make(chan error, 1)}
	s.requests <- request
	return <-request.result
}

// close must come after the last start and after every process has ended.
func (s *spawner) close() {
	close(s.requests)
	<-s.done
}
