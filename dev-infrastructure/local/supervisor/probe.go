package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Probes are the settings of the probes of all processes. Kubernetes has the same ones for a pod.
type Probes struct {
	// ReadyTimeout and LiveTimeout bound one probe. ReadyTimeout is longer than the checks of /readyz take, which name the
	// dependency that does not respond.
	ReadyTimeout, LiveTimeout time.Duration
	// StartInterval is the interval while the process has not been ready, Interval that of a ready process, and FailedInterval
	// that after a failed probe.
	StartInterval, Interval, FailedInterval time.Duration
	// LiveFailures is the number of consecutive failed liveness probes after which a process is killed and restarted. Until its first
	// response, a process has StartTimeout instead: it can need long before it listens, for example with the race detector.
	LiveFailures int
	StartTimeout time.Duration
	// HungGrace is the time from the stop signal until a hung process is killed. A process that is stopped by SIGSTOP does not
	// receive the signal.
	HungGrace time.Duration
}

// DefaultProbes detect a hung process after at most 21 seconds. A busy machine delays responses, so the timeouts are generous.
var DefaultProbes = Probes{
	ReadyTimeout: 4 * time.Second, LiveTimeout: 4 * time.Second,
	StartInterval: 50 * time.Millisecond, Interval: 5 * time.Second, FailedInterval: 2 * time.Second,
	LiveFailures: 3, StartTimeout: 2 * time.Minute,
	HungGrace: 2 * time.Second,
}

// watch probes the process until ctx ends. It returns an error if the process is hung.
func (p *process) watch(ctx context.Context) error {
	ready, responded, failures, began := false, false, 0, time.Now()
	for {
		err, liveErr := p.probe(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil && !ready && p.spec.Settle != nil {
			err = p.spec.Settle(ctx)
			if ctx.Err() != nil {
				return nil
			}
		}
		switch {
		case liveErr == nil:
			responded, failures = true, 0
		case !responded && time.Since(began) >= p.probes.StartTimeout:
			return fmt.Errorf("hung: no response in the %s after its start: it %w", p.probes.StartTimeout, liveErr)
		case responded:
			if failures++; failures >= p.probes.LiveFailures {
				return fmt.Errorf("hung: %d consecutive liveness probes failed, the last one because it %w", failures, liveErr)
			}
		}
		switch {
		case err == nil:
			ready = true
			p.set(Ready, "")
			if !p.wasReady() {
				close(p.everReady)
			}
		case ready:
			p.set(NotReady, p.explain(err, liveErr))
		default:
			p.set(Starting, p.explain(err, liveErr))
		}
		_ = p.log.bound()
		if backoff.Sleep(ctx, p.interval(ready, err)) != nil {
			return nil
		}
	}
}

// interval returns the pause before the next probe.
func (p *process) interval(ready bool, err error) time.Duration {
	switch {
	case err == nil:
		return p.probes.Interval
	case ready:
		return p.probes.FailedInterval
	default:
		return p.probes.StartInterval
	}
}

// probe runs both probes at the same time. A process that is ready responds: then the result of the liveness probe is not used.
func (p *process) probe(ctx context.Context) (readyErr, liveErr error) {
	var live sync.WaitGroup
	if p.spec.Live != nil {
		live.Go(func() { liveErr = within(ctx, p.probes.LiveTimeout, p.spec.Live) })
	}
	if p.spec.Ready != nil {
		readyErr = within(ctx, p.probes.ReadyTimeout, p.spec.Ready)
	}
	live.Wait()
	if readyErr == nil && p.spec.DataDir != "" {
		// A database can serve reads, and small writes, for a long time after its disk became full.
		if err := disk.CheckSpace(p.spec.DataDir); errors.Is(err, disk.ErrFull) {
			return err, nil
		}
	}
	switch {
	case p.spec.Ready == nil:
		readyErr = liveErr
	case readyErr == nil:
		liveErr = nil
	}
	return readyErr, liveErr
}

// errTimeout is the error of a probe that did not end in time.
var errTimeout = errors.New("does not respond within")

// within calls a probe with a timeout.
func within(ctx context.Context, timeout time.Duration, probe func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := probe(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w %s", errTimeout, timeout)
	}
	return err
}

// explain returns the message of a process that is not ready. A full disk and a process that does not respond are the cause of
// whatever else is reported.
func (p *process) explain(readyErr, liveErr error) string {
	text := readyErr.Error()
	switch {
	case liveErr != nil:
		text = liveErr.Error()
	case p.spec.Live != nil && errors.Is(readyErr, errTimeout):
		text = fmt.Sprintf("responds, but its readiness check does not end within %s: a dependency can be away", p.probes.ReadyTimeout)
	}
	return p.withDisk(text)
}

// withDisk adds to the text of a failure that the disk of the process's data is full.
func (p *process) withDisk(text string) string {
	if p.spec.DataDir == "" || strings.HasPrefix(text, disk.ErrFull.Error()) {
		return text
	}
	if err := disk.CheckSpace(p.spec.DataDir); errors.Is(err, disk.ErrFull) {
		return err.Error() + "; " + text
	}
	return text
}
