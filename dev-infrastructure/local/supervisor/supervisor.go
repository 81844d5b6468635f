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

// Supervisor runs a set of processes. It is safe for concurrent use.
type Supervisor struct {
	processes []*process
	byName    map[string]*process
	events    *eventLog
	stopOnce  sync.Once
	stopped   chan struct{}
	// starting is held while the processes' goroutines are started, so that Stop finds all of them or prevents their
	// start.
	starting sync.Mutex
}

// Options configures a Supervisor.
type Options struct {
	// LogDir contains one log file per process. It is created if it does not exist.
	LogDir string
	// OnChange is called, from several goroutines, when the state or message of a process changes. It may be nil and
	// must not block.
	OnChange func(Status)
	// Probes are the settings of the probes; DefaultProbes if it is zero.
	Probes Probes
}

// New returns a Supervisor of specs, whose dependencies must exist and have no cycles. It starts nothing.
func New(specs []Spec, options Options) (*Supervisor, error) {
	if options.OnChange == nil {
		options.OnChange = func(Status) {}
	}
	if err := os.MkdirAll(options.LogDir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the folder of the logs: %w", err)
	}
	if options.Probes == (Probes{}) {
		options.Probes = DefaultProbes
	}
	events, err := openEvents(options.LogDir)
	if err != nil {
		return nil, err
	}
	s := &Supervisor{byName: map[string]*process{}, events: events, stopped: make(chan struct{})}
	for _, spec := range specs {
		if s.byName[spec.Name] != nil {
			return nil, fmt.Errorf("duplicate process name %s", spec.Name)
		}
		log, err := openLog(options.LogDir, spec.Name)
		if err != nil {
			return nil, err
		}
		p := newProcess(spec, log, events, &options)
		s.byName[spec.Name] = p
		s.processes = append(s.processes, p)
	}
	for _, p := range s.processes {
		for _, name := range p.spec.Needs {
			need := s.byName[name]
			if need == nil {
				return nil, fmt.Errorf("%s needs unknown process %s", p.spec.Name, name)
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
			return fmt.Errorf("cyclic dependency of processes: %s", strings.Join(path, " needs "))
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

// Start starts all processes and returns when all have been ready, except for those in the background. If ctx ends or a process cannot be started, it stops
// all processes and returns an error. It is called once.
func (s *Supervisor) Start(ctx context.Context) error {
	if !s.begin() {
		return errors.New("stopped before it was started")
	}
	awaited := slices.DeleteFunc(slices.Clone(s.processes), func(p *process) bool { return p.spec.Background })
	failed := make(chan error, len(awaited))
	ready := make(chan struct{}, len(awaited))
	for _, p := range awaited {
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
	for range awaited {
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

// begin starts the goroutines of the processes, unless Stop was called.
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

// unready describes the processes that are not ready.
func (s *Supervisor) unready() string {
	var parts []string
	for _, status := range s.Status() {
		if status.State != Ready {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s is %s %s", status.Name, status.State, status.Message)))
		}
	}
	return strings.Join(parts, "; ")
}

// Stop stops all processes, each after those that need it, and returns when all have terminated. It is idempotent.
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
	s.events.close()
}

// Events returns the latest events of all processes, the oldest first.
func (s *Supervisor) Events() []Event { return s.events.events() }

// Names returns the names of the processes in the order of their specs.
func (s *Supervisor) Names() []string {
	names := make([]string, len(s.processes))
	for i, p := range s.processes {
		names[i] = p.spec.Name
	}
	return names
}

// Status returns the status of all processes in the order of their specs.
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
		return nil, fmt.Errorf("unknown process %q; the processes are %s", name, strings.Join(slices.Sorted(slices.Values(s.Names())), ", "))
	}
	return p, nil
}

// Signal sends a signal to a process. If the process terminates, it is restarted.
func (s *Supervisor) Signal(name string, signal syscall.Signal) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	return p.signal(signal)
}

// Kill kills a process with SIGKILL, as in a crash, and returns when it has terminated.
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
			return fmt.Errorf("waiting for %s to terminate: %w", name, ctx.Err())
		}
	}
	return nil
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
