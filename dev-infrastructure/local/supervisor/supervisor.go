package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Supervisor keeps a set of processes running.
type Supervisor struct {
	processes []*process
	byName    map[string]*process
	stopOnce  sync.Once
	stopped   chan struct{}
	// starting is held while the processes' goroutines are started: whoever stops finds all of them, or has none start.
	starting sync.Mutex
}

// Options say where logs go and who is told.
type Options struct {
	// LogDir takes one file per process; it is made when absent.
	LogDir string
	// OnChange is called, from several goroutines, whenever the state or message of a process changes. It may be nil and
	// must not block.
	OnChange func(Status)
}

// New makes a supervisor of specs, which must name each other without cycles. Nothing is started yet.
func New(specs []Spec, options Options) (*Supervisor, error) {
	if options.OnChange == nil {
		options.OnChange = func(Status) {}
	}
	if err := os.MkdirAll(options.LogDir, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the logs: %w", err)
	}
	s := &Supervisor{byName: map[string]*process{}, stopped: make(chan struct{})}
	for _, spec := range specs {
		if s.byName[spec.Name] != nil {
			return nil, fmt.Errorf("two processes are named %s", spec.Name)
		}
		log, err := openLog(options.LogDir, spec.Name)
		if err != nil {
			return nil, err
		}
		p := newProcess(spec, log, options.OnChange)
		s.byName[spec.Name] = p
		s.processes = append(s.processes, p)
	}
	for _, p := range s.processes {
		for _, name := range p.spec.Needs {
			need := s.byName[name]
			if need == nil {
				return nil, fmt.Errorf("%s needs %s, which is not there", p.spec.Name, name)
			}
			p.needs = append(p.needs, need)
			need.neededBy = append(need.neededBy, p)
		}
	}
	if err := s.checkCycles(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Supervisor) checkCycles() error {
	const visiting, visited = 1, 2
	marks := map[*process]int{}
	var visit func(p *process, path []string) error
	visit = func(p *process, path []string) error {
		path = append(path, p.spec.Name)
		switch marks[p] {
		case visiting:
			return fmt.Errorf("processes need each other: %s", strings.Join(path, " needs "))
		case visited:
			return nil
		}
		marks[p] = visiting
		for _, need := range p.needs {
			if err := visit(need, path); err != nil {
				return err
			}
		}
		marks[p] = visited
		return nil
	}
	for _, p := range s.processes {
		if err := visit(p, nil); err != nil {
			return err
		}
	}
	return nil
}

// Start starts everything and returns when all have been ready, or when ctx ended or a process cannot be started; in
// those cases everything is stopped again. It is called once.
func (s *Supervisor) Start(ctx context.Context) error {
	if !s.begin() {
		return errors.New("stopped before it was started")
	}
	failed := make(chan error, len(s.processes))
	ready := make(chan struct{}, len(s.processes))
	for _, p := range s.processes {
		go func() {
			select {
			case <-p.everReady:
				ready <- struct{}{}
			case err := <-p.failed:
				failed <- err
			case <-p.done:
			}
		}()
	}
	for range s.processes {
		select {
		case <-ready:
		case err := <-failed:
			s.Stop()
			return err
		case <-s.stopped:
			return errors.New("stopped while starting")
		case <-ctx.Done():
			err := fmt.Errorf("%w while starting: %s", context.Cause(ctx), s.unready())
			s.Stop()
			return err
		}
	}
	return nil
}

// begin has the processes be kept running, unless Stop was called.
func (s *Supervisor) begin() bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	select {
	case <-s.stopped:
		return false
	default:
	}
	for _, p := range s.processes {
		var keepCtx context.Context
		keepCtx, p.stop = context.WithCancel(context.Background())
		go p.keep(keepCtx)
	}
	return true
}

// unready tells what is not ready, and why.
func (s *Supervisor) unready() string {
	var parts []string
	for _, status := range s.Status() {
		if status.State != Ready {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s is %s %s", status.Name, status.State, status.Message)))
		}
	}
	return strings.Join(parts, "; ")
}

// Stop ends everything, each process after those that need it, and returns when all are gone. It may be called again.
func (s *Supervisor) Stop() {
	s.starting.Lock()
	s.stopOnce.Do(func() { close(s.stopped) })
	s.starting.Unlock()
	var wg sync.WaitGroup
	for _, p := range s.processes {
		if p.stop == nil { // never started
			continue
		}
		wg.Go(func() {
			for _, dependent := range p.neededBy {
				<-dependent.done
			}
			p.stop()
			<-p.done
			_ = p.log.file.Close()
		})
	}
	wg.Wait()
}

// Stopped is closed when Stop was called.
func (s *Supervisor) Stopped() <-chan struct{} { return s.stopped }

// Names are the processes' names, in the order they were given.
func (s *Supervisor) Names() []string {
	names := make([]string, len(s.processes))
	for i, p := range s.processes {
		names[i] = p.spec.Name
	}
	return names
}

// Status tells where every process stands, in the order they were given.
func (s *Supervisor) Status() []Status {
	statuses := make([]Status, len(s.processes))
	for i, p := range s.processes {
		statuses[i], _ = p.current()
	}
	return statuses
}

func (s *Supervisor) find(name string) (*process, error) {
	p := s.byName[name]
	if p == nil {
		return nil, fmt.Errorf("there is no process %q; there are %s", name, strings.Join(slices.Sorted(slices.Values(s.Names())), ", "))
	}
	return p, nil
}

// Signal sends a signal to a process, as somebody else might: it is started again if it dies of it.
func (s *Supervisor) Signal(name string, signal syscall.Signal) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	return p.signal(signal)
}

// Kill ends a process with SIGKILL, as a crash would, and returns when it is gone.
func (s *Supervisor) Kill(ctx context.Context, name string) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	before, changed := p.current()
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	for status := before; status.Pid == before.Pid && status.State != Stopped; status, changed = p.current() {
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the end of %s: %w", name, ctx.Err())
		}
	}
	return nil
}

// Restart ends a process as Stop would, starts it again without delay, and waits until it is ready.
func (s *Supervisor) Restart(ctx context.Context, name string) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	select {
	case p.restartCh <- ended:
	case <-p.done:
		return fmt.Errorf("%s is stopped", name)
	case <-ctx.Done():
		return fmt.Errorf("restarting %s: %w", name, ctx.Err())
	}
	<-ended
	return s.AwaitReady(ctx, name)
}

// AwaitReady waits until the process runs and is ready.
func (s *Supervisor) AwaitReady(ctx context.Context, name string) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	for {
		status, changed := p.current()
		if status.State == Ready {
			return nil
		}
		select {
		case <-changed:
		case <-p.done:
			return fmt.Errorf("%s is stopped", name)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s, which is %s (%s): %w", name, status.State, status.Message, ctx.Err())
		}
	}
}
