package crashsweep

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

// ErrCrashed is the result of every external call of a crashed instance.
var ErrCrashed = errors.New("the process has crashed")

// Points intercepts the external calls of a process. *Injector and *Process implement it.
type Points interface {
	// Point is called just before or just after an external write; name describes it. An error means that the process
	// has crashed here or earlier: the caller must not send the write, or must drop its response.
	Point(name string) error
	// Crashed reports whether the process has crashed. Callers check it before external reads.
	Crashed() bool
}

// Injector injects the crashes of one run into one process. An instance of the process crashes when Point returns
// ErrCrashed; Point then returns ErrCrashed until the test has started a replacement and calls Restart. It is safe for
// concurrent use.
type Injector struct {
	seed uint64
	// reference holds the states of the undisturbed run by checkpoint; nil in the undisturbed run itself.
	reference []any

	mu sync.Mutex
	// crashAt holds the remaining crash points in ascending order, counted from 1 over all instances.
	crashAt []int
	points  []string
	states  []any
	crashed bool
	done    chan struct{}
}

// NewInjector returns an injector for a test that is not a sweep. The process crashes at the given points, in ascending order,
// counted from 1 over all instances.
func NewInjector(crashAt ...int) *Injector { return newInjector(0, crashAt...) }

func newInjector(seed uint64, crashAt ...int) *Injector {
	return &Injector{seed: seed, crashAt: crashAt, done: make(chan struct{})}
}

// Seed returns the seed of the run; 0 is the undisturbed run.
func (i *Injector) Seed() uint64 { return i.seed }

// Point implements Points.
func (i *Injector) Point(name string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.crashed {
		return ErrCrashed
	}
	i.points = append(i.points, name)
	if len(i.crashAt) == 0 || len(i.points) < i.crashAt[0] {
		return nil
	}
	i.crashAt, i.crashed = i.crashAt[1:], true
	close(i.done)
	return ErrCrashed
}

// Crashed implements Points.
func (i *Injector) Crashed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.crashed
}

// Done returns a channel that is closed when the current instance crashes.
func (i *Injector) Done() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.done
}

// Restart ends the crash: from now on calls belong to the replacement. The crashed instance must have stopped completely.
func (i *Injector) Restart() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.crashed, i.done = false, make(chan struct{})
}

// Supervise starts an instance of a process and replaces each instance that crashes. start returns a function that stops
// the instance and waits for all of its goroutines. The returned function stops the current instance and ends the
// supervision; it may be called more than once.
func (i *Injector) Supervise(start func() (stop func())) (stop func()) {
	stopInstance := start()
	stopped := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stopped:
				stopInstance()
				return
			case <-i.Done():
			}
			stopInstance()
			i.Restart()
			stopInstance = start()
		}
	})
	return sync.OnceFunc(func() { close(stopped); group.Wait() })
}

// Checkpoint waits until ready returns nil and observe returns the same state as in the undisturbed run, and returns the
// state. Checkpoints of a run are numbered in the order of their calls, so all runs must reach the same checkpoints. If
// that takes longer than eventually.Soon waits, Checkpoint reports an error that begins with name and returns the current state.
// It must not be called concurrently.
func (i *Injector) Checkpoint(t testing.TB, name string, ready func() error, observe func() any) any {
	t.Helper()
	ctx, cancel := eventually.Context(t)
	defer cancel()
	checkpoint := len(i.states)
	var state any
	err := eventually.Repeat(ctx, func() error {
		if err := ready(); err != nil {
			return err
		}
		state = observe()
		if checkpoint < len(i.reference) {
			if diff := cmp.Diff(i.reference[checkpoint], state); diff != "" {
				return fmt.Errorf("the state differs from the undisturbed run (-undisturbed +got):\n%s", diff)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		state = observe()
	}
	i.states = append(i.states, state)
	return state
}

// Passed returns the names of the points so far.
func (i *Injector) Passed() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.points
}
