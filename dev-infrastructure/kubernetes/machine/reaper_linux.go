package machine

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper starts the processes of a machine and reaps all processes whose parents have terminated, which is the task of PID 1. Nothing
// else may wait for processes. It is safe for concurrent use.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]func(syscall.WaitStatus)
}

// newReaper returns a reaper that reaps until the process terminates.
func newReaper() *reaper {
	r := &reaper{waiting: map[int]func(syscall.WaitStatus){}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			r.reap()
		}
	}()
	return r
}

// reap reaps all terminated processes.
func (r *reaper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock() // start holds it until it has registered its process
		exited := r.waiting[pid]
		delete(r.waiting, pid)
		r.mu.Unlock()
		if exited != nil {
			go exited(status)
		}
	}
}

// start starts a process and calls exited in a goroutine when it has terminated. files are its first descriptors.
func (r *reaper) start(path string, arguments, environment []string, files []*os.File, exited func(syscall.WaitStatus)) error {
	attributes := &syscall.ProcAttr{Env: environment, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, file := range files {
		attributes.Files = append(attributes.Files, file.Fd())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, append([]string{path}, arguments...), attributes)
	if err != nil {
		return fmt.Errorf("starting %s: %w", path, err)
	}
	r.waiting[pid] = exited
	return nil
}

// describe returns how a process terminated.
func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
