package crashsweep

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
)

// Process is a process that several runs share: it crashes during runs and keeps running between them. Its external writes
// pass Point, which does nothing between runs.
type Process struct {
	injector atomic.Pointer[Injector] // of the current run; nil between runs
	calls    atomic.Int64             // number of writes that have begun, and of those that have ended

	mu    sync.Mutex
	start func() (stop func())
	stop  func()
}

// Start starts the first instance. start is called for each instance and returns a function that stops the instance and
// waits for all of its goroutines.
func (p *Process) Start(start func() (stop func())) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start, p.stop = start, start()
}

// Stop stops the current instance.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

// replace stops the crashed instance and starts another.
func (p *Process) replace(injector *Injector) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
	injector.Restart()
	p.stop = p.start()
}

// During runs do and lets the process crash at the injector's points meanwhile. Each crashed instance is replaced. When
// During returns an instance is running.
func (p *Process) During(injector *Injector, do func()) {
	finished := make(chan struct{})
	p.injector.Store(injector)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-finished:
				return
			case <-injector.Done():
				p.replace(injector)
			}
		}
	})
	defer func() {
		close(finished)
		group.Wait()
		if injector.Crashed() {
			p.replace(injector)
		}
		p.injector.Store(nil)
	}()
	do()
}

// Point implements Points. It returns nil between runs.
func (p *Process) Point(name string) error {
	p.calls.Add(1)
	if injector := p.injector.Load(); injector != nil {
		return injector.Point(name)
	}
	return nil
}

// Crashed implements Points.
func (p *Process) Crashed() bool {
	injector := p.injector.Load()
	return injector != nil && injector.Crashed()
}

// Idle returns nil if the process is running and report returns nil for it, and no write has begun or ended meanwhile. report returns why the
// current instance is not idle: what it still has to do, or has not read yet. No instance is replaced while report runs.
func (p *Process) Idle(report func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.calls.Load()
	if p.Crashed() {
		return ErrCrashed
	}
	if err := report(); err != nil {
		return err
	}
	if p.Crashed() {
		return ErrCrashed
	}
	if p.calls.Load() != before {
		return errors.New("the process has written meanwhile")
	}
	return nil
}

// KubernetesTransport returns a transport to a Kubernetes API server that intercepts every request but reads and reviews.
// It has the signature of rest.Config.Wrap's argument.
func (p *Process) KubernetesTransport(next http.RoundTripper) http.RoundTripper {
	intercepted := transport{points: p, next: next, write: kubernetesWrite}
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if kubernetesWrite(request) != "" {
			defer p.calls.Add(1)
		}
		return intercepted.RoundTrip(request)
	})
}
