package supervisor

import (
	"context"
	"fmt"
	"sync"
)

// hold is a request to kill a process and not to start it again until the hold is released. runOnce returns it as the reason for the
// end of the process.
type hold struct {
	// began is closed when the process does not run, and released when it may be started again.
	began, released chan struct{}
}

// Error implements error.
func (*hold) Error() string { return "held" }

// Hold kills a process with SIGKILL, as in a crash, and does not start it again until release is called, or Restart. It returns when
// the process has terminated. Nothing listens on the ports of the process meanwhile, so connections to it are refused.
func (s *Supervisor) Hold(ctx context.Context, name string) (release func(), err error) {
	p, err := s.find(name)
	if err != nil {
		return nil, err
	}
	h := &hold{began: make(chan struct{}), released: make(chan struct{})}
	select {
	case p.holdCh <- h:
	case <-p.done:
		return nil, fmt.Errorf("%s is stopped", name)
	case <-ctx.Done():
		return nil, fmt.Errorf("holding %s: %w", name, ctx.Err())
	}
	<-h.began
	return sync.OnceFunc(func() { close(h.released) }), nil
}

// awaitRelease waits until a hold of the process ends. It returns false if ctx ends first.
func (p *process) awaitRelease(ctx context.Context, h *hold) bool {
	p.set(Stopped, "held until it is released")
	close(h.began)
	select {
	case <-ctx.Done():
		return false
	case <-h.released:
	case requested := <-p.restartCh:
		p.event(EventRestarting, 0, "requested")
		p.apply(requested)
	}
	return true
}
