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

	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// process runs one Spec in a goroutine.
type process struct {
	spec      Spec
	log       *logFile
	onChange  func(Status)
	events    *eventLog
	probes    Probes
	needs     []*process
	neededBy  []*process
	restartCh chan *restart
	holdCh    chan *hold

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

func newProcess(spec Spec, log *logFile, events *eventLog, options *Options) *process {
	return &process{
		spec: spec, log: log, events: events, onChange: options.OnChange, probes: options.Probes,
		restartCh: make(chan *restart), holdCh: make(chan *hold), everReady: make(chan struct{}), failed: make(chan error, 1),
		done: make(chan struct{}), changed: make(chan struct{}),
		status: Status{Name: spec.Name, State: Waiting, Since: time.Now(), Program: spec.Program, Ports: spec.Ports, Log: log.path, DataDir: spec.DataDir, Background: spec.Background},
	}
}

// set stores a state with its message and notifies those who wait for a change.
func (p *process) set(state State, message string) {
	p.mu.Lock()
	if p.status.State == state && p.status.Message == message {
		p.mu.Unlock()
		return
	}
	before := p.status.State
	if before != state {
		p.status.Since = time.Now()
	}
	p.status.State, p.status.Message = state, message
	status := p.status
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if before != state && state == Ready {
		p.event(EventReady, status.Pid, "")
	}
	if before == Ready && state == NotReady {
		p.event(EventNotReady, status.Pid, message)
	}
	p.onChange(status)
}

// event records an event of the process.
func (p *process) event(kind EventType, pid int, message string) {
	p.events.record(Event{Process: p.spec.Name, Type: kind, Pid: pid, Message: message})
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
		if held, ok := errors.AsType[*hold](err); ok {
			if !p.awaitRelease(ctx, held) {
				return
			}
			pauses.Reset()
			continue
		}
		if !p.spec.Background && !p.wasReady() && starts >= maxFirstStarts {
			p.set(BackingOff, p.withDisk(err.Error()))
			p.failed <- fmt.Errorf("starting %s failed after %d attempts: %w; see its log %s", p.spec.Name, starts, err, p.log.path)
			<-ctx.Done()
			return
		}
		p.set(BackingOff, p.withDisk(err.Error()))
		if time.Since(started) >= stableAfter {
			pauses.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case requested := <-p.restartCh:
			p.event(EventRestarting, 0, "requested")
			p.apply(requested)
			pauses.Reset()
		case held := <-p.holdCh:
			if !p.awaitRelease(ctx, held) {
				return
			}
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
			p.event(EventFailed, 0, err.Error())
			return fmt.Errorf("preparing: %w", err)
		}
	}
	begin := p.log.size()
	running, err := p.launch(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.event(EventFailed, 0, p.withDisk(err.Error()))
		}
		return err
	}
	p.setRunning(running)
	p.event(EventStarted, running.Pid(), "")
	defer p.recordExit(running, begin)

	watchCtx, stopWatching := context.WithCancel(ctx)
	watched, hung := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(watched)
		if err := p.watch(watchCtx); err != nil {
			hung <- err
		}
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
		p.shutDown(running, p.grace())
		return ctx.Err()
	case requested := <-p.restartCh:
		stopWatching()
		<-watched
		p.event(EventRestarting, running.Pid(), "requested")
		p.shutDown(running, p.grace())
		p.apply(requested)
		return errRestart
	case held := <-p.holdCh:
		stopWatching()
		<-watched
		kill(running)
		return held
	case err := <-hung:
		p.event(EventHung, running.Pid(), p.withDisk(err.Error()))
		p.shutDown(running, p.probes.HungGrace)
		return err
	}
}

// recordExit records how the process terminated.
func (p *process) recordExit(running Running, begin int64) {
	e := Event{Process: p.spec.Name, Type: EventExited, Pid: running.Pid()}
	code := 0
	var exit *exec.ExitError
	if err := running.Err(); errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			e.Signal = unix.SignalName(status.Signal())
		}
		code = exit.ExitCode()
	} else if err != nil {
		e.Message = err.Error()
		code = -1
	}
	if e.Signal == "" {
		e.ExitCode = &code
	}
	if code > 0 {
		e.Message = p.withDisk(p.exitError(running, begin).Error())
	}
	p.events.record(e)
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
	if line := disk.FullLine(p.log.text(begin)); line != "" {
		return fmt.Errorf("%w: %s: %s", disk.ErrFull, reason, line)
	}
	if line := p.log.tail(begin); line != "" {
		reason += ": " + line
	}
	return errors.New(reason)
}

// grace returns the time from the stop signal until the process group is killed.
func (p *process) grace() time.Duration {
	if p.spec.Grace == 0 {
		return defaultGrace
	}
	return p.spec.Grace
}

// shutDown stops the process. After the grace period it kills the process, its group and its descendants.
func (p *process) shutDown(running Running, grace time.Duration) {
	p.set(Stopping, "")
	signal := p.spec.StopSignal
	if signal == 0 {
		signal = syscall.SIGTERM
	}
	_ = syscall.Kill(running.Pid(), signal)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-running.Exited():
	case <-timer.C:
		kill(running)
	}
}

// kill kills a process, its group and its descendants, and returns when the process has terminated.
func kill(running Running) {
	// Descendants can have groups of their own, as PostgreSQL's do. Those that are hung would not notice that their
	// parent has terminated.
	remaining := descendants(running.Pid()) // the kernel does not know them once their parent has terminated
	// The process is killed before its descendants, because it would handle their ends, and could even exit by itself.
	_ = syscall.Kill(-running.Pid(), syscall.SIGKILL)
	for _, descendant := range remaining {
		_ = syscall.Kill(descendant, syscall.SIGKILL)
	}
	<-running.Exited()
}
