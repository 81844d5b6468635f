package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// process runs one Spec in a goroutine.
type process struct {
	spec      Spec
	log       *logFile
	onChange  func(Status)
	needs     []*process
	neededBy  []*process
	restartCh chan chan struct{}

	// everReady is closed when the process is ready for the first time. failed receives the error if it never becomes
	// ready.
	everReady chan struct{}
	failed    chan error
	// stop ends the goroutine; done is closed when it has ended.
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	status  Status
	running Running
	changed chan struct{}
}

func newProcess(spec Spec, log *logFile, onChange func(Status)) *process {
	return &process{
		spec: spec, log: log, onChange: onChange,
		restartCh: make(chan chan struct{}), everReady: make(chan struct{}), failed: make(chan error, 1),
		done: make(chan struct{}), changed: make(chan struct{}),
		status: Status{Name: spec.Name, State: Waiting, Since: time.Now(), Program: spec.Program, Ports: spec.Ports, Log: log.path},
	}
}

// set stores a state with its message and notifies those who wait for a change.
func (p *process) set(state State, message string) {
	p.mu.Lock()
	if p.status.State == state && p.status.Message == message {
		p.mu.Unlock()
		return
	}
	if p.status.State != state {
		p.status.Since = time.Now()
	}
	p.status.State, p.status.Message = state, message
	status := p.status
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.onChange(status)
}

func (p *process) current() (Status, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.changed
}

func (p *process) setRunning(running Running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = running
	p.status.Pid = 0
	if running != nil {
		p.status.Pid = running.Pid()
	}
}

// signal sends a signal to the process, but not to its group.
func (p *process) signal(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return fmt.Errorf("%s does not run", p.spec.Name)
	}
	select {
	case <-p.running.Exited():
		return fmt.Errorf("%s does not run", p.spec.Name)
	default:
	}
	return syscall.Kill(p.running.Pid(), signal)
}

// keep runs the process until ctx ends. It locks a thread: see the package comment.
func (p *process) keep(ctx context.Context) {
	runtime.LockOSThread() // never unlocked: the thread terminates with this goroutine, after the process
	defer close(p.done)
	defer p.set(Stopped, "")

	if !p.awaitNeeds(ctx) {
		return
	}
	pauses := backoff.New(firstDelay, lastDelay)
	for starts := 1; ctx.Err() == nil; starts++ {
		started := time.Now()
		p.mu.Lock()
		p.status.Restarts, p.status.Started = starts-1, started
		p.mu.Unlock()
		err := p.runOnce(ctx)
		p.setRunning(nil)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errRestart) {
			pauses.Reset()
			continue
		}
		if !p.wasReady() && starts >= maxFirstStarts {
			p.set(BackingOff, err.Error())
			p.failed <- fmt.Errorf("starting %s failed after %d attempts: %w; see its log %s", p.spec.Name, starts, err, p.log.path)
			<-ctx.Done()
			return
		}
		p.set(BackingOff, err.Error())
		if time.Since(started) >= stableAfter {
			pauses.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case started := <-p.restartCh:
			close(started)
			pauses.Reset()
		case <-time.After(pauses.Next()):
		}
	}
}

func (p *process) awaitNeeds(ctx context.Context) bool {
	for _, need := range p.needs {
		p.set(Waiting, "for "+need.spec.Name)
		select {
		case <-ctx.Done():
			return false
		case <-need.everReady:
		}
	}
	return true
}

func (p *process) wasReady() bool {
	select {
	case <-p.everReady:
		return true
	default:
		return false
	}
}

// errRestart is returned by runOnce if Restart was called.
var errRestart = errors.New("restarted on request")

// runOnce starts the process and returns when it has terminated. The error is the reason; it is never nil.
func (p *process) runOnce(ctx context.Context) error {
	p.set(Starting, "")
	if p.spec.Prepare != nil {
		if err := p.spec.Prepare(ctx); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	begin := p.log.size()
	running, err := p.launch(ctx)
	if err != nil {
		return err
	}
	p.setRunning(running)

	watchCtx, stopWatching := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		p.watch(watchCtx)
	}()
	defer func() {
		stopWatching()
		<-watched
	}()

	select {
	case <-running.Exited():
		return p.exitError(running, begin)
	case <-ctx.Done():
		stopWatching()
		<-watched
		p.shutDown(running)
		return ctx.Err()
	case started := <-p.restartCh:
		stopWatching()
		<-watched
		p.shutDown(running)
		close(started)
		return errRestart
	}
}

func (p *process) launch(ctx context.Context) (Running, error) {
	if p.spec.Launch != nil {
		return p.spec.Launch(ctx, p.log.file)
	}
	return launch(&p.spec, p.log.file)
}

// exitError returns why a process terminated, with the last line of its log if it terminated by itself.
func (p *process) exitError(running Running, begin int64) error {
	reason := "terminated with exit code 0"
	if err := running.Err(); err != nil {
		reason = "terminated: " + err.Error()
		var exit *exec.ExitError
		if errors.As(err, &exit) && !exit.Exited() { // a signal from outside
			return errors.New(reason)
		}
	}
	if line := p.log.tail(begin); line != "" {
		reason += ": " + line
	}
	return errors.New(reason)
}

// shutDown stops the process, and kills its group after the grace period.
func (p *process) shutDown(running Running) {
	p.set(Stopping, "")
	signal, grace := p.spec.StopSignal, p.spec.Grace
	if signal == 0 {
		signal = syscall.SIGTERM
	}
	if grace == 0 {
		grace = defaultGrace
	}
	_ = syscall.Kill(running.Pid(), signal)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-running.Exited():
	case <-timer.C:
		_ = syscall.Kill(-running.Pid(), syscall.SIGKILL)
		<-running.Exited()
	}
}

// watch probes the process until ctx ends.
func (p *process) watch(ctx context.Context) {
	interval := firstProbeInterval
	ready := false
	for {
		err := p.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil && !ready && p.spec.Settle != nil {
			err = p.spec.Settle(ctx)
			if ctx.Err() != nil {
				return
			}
		}
		switch {
		case err == nil:
			ready, interval = true, laterProbeInterval
			p.set(Ready, "")
			if !p.wasReady() {
				close(p.everReady)
			}
		case ready:
			p.set(NotReady, err.Error())
		default:
			p.set(Starting, err.Error())
		}
		_ = p.log.bound()
		if backoff.Sleep(ctx, interval) != nil {
			return
		}
	}
}

func (p *process) probe(ctx context.Context) error {
	if p.spec.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.spec.Ready(ctx)
}
