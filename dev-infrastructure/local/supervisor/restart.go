package supervisor

import (
	"context"
	"fmt"
)

// restart is a request to stop a process gracefully and to start it again.
type restart struct {
	// program is what runs afterwards; nil if it does not change.
	program *Program
	// applied is closed when the process has terminated and the next start uses program.
	applied chan struct{}
}

// Program is a program with its arguments.
type Program struct {
	// Path is absolute.
	Path string
	Args []string
}

// Restart stops a process gracefully, starts it again without a pause, and waits until it is ready.
func (s *Supervisor) Restart(ctx context.Context, name string) error {
	return s.restart(ctx, name, nil)
}

// Replace is Restart with another program, which later starts use too. A process with Launch has no program to replace.
func (s *Supervisor) Replace(ctx context.Context, name string, program Program) error {
	return s.restart(ctx, name, &program)
}

func (s *Supervisor) restart(ctx context.Context, name string, program *Program) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	if program != nil && p.spec.Launch != nil {
		return fmt.Errorf("%s has no program that can be replaced", name)
	}
	requested := &restart{program: program, applied: make(chan struct{})}
	select {
	case p.restartCh <- requested:
	case <-p.done:
		return fmt.Errorf("%s is stopped", name)
	case <-ctx.Done():
		return fmt.Errorf("restarting %s: %w", name, ctx.Err())
	}
	<-requested.applied
	return s.AwaitReady(ctx, name)
}

// apply makes the next start use the program of a request. The goroutine of the process calls it while the process does not run.
func (p *process) apply(requested *restart) {
	if requested.program != nil {
		p.spec.Program, p.spec.Args = requested.program.Path, requested.program.Args
		p.mu.Lock()
		p.status.Program = requested.program.Path
		p.mu.Unlock()
	}
	close(requested.applied)
}
