// Package admission shares the concurrent requests of a server among flows, for example subscriptions. A request holds a seat
// while it is handled. Each flow has a limit of seats, and a queue of requests that wait for one. A free seat goes to the
// waiting flow that holds the fewest seats. If too many requests wait, the newest one of the longest queue is refused. A flow
// that sends too many requests therefore delays and refuses its own.
//
// The memory of a Controller depends on the number of requests that are handled or wait, and not on the number of flows that
// ever existed. The idea is that of API Priority and Fairness of Kubernetes, with one queue per flow instead of shuffle
// sharding, because the number of flows with requests is bounded.
package admission

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Limits bounds a Controller.
type Limits struct {
	// Seats is the most requests that are handled at the same time, and SeatsPerFlow the most of one flow.
	Seats, SeatsPerFlow int
	// Waiting is the most requests that wait, and WaitingPerFlow the most of one flow.
	Waiting, WaitingPerFlow int
	// MaxWait is the longest time that a request waits.
	MaxWait time.Duration
}

// Errors of Acquire, which a client may retry.
var (
	// ErrFlowBusy is the refusal of a request whose flow has too many requests.
	ErrFlowBusy = errors.New("too many requests of the flow")
	// ErrBusy is the refusal of a request that got no seat in time although its flow has few requests.
	ErrBusy = errors.New("too many requests")
)

// Controller decides when a request is handled. It is safe for concurrent use.
type Controller struct {
	limits Limits

	mu        sync.Mutex
	flows     map[string]*flow
	executing int
	waiting   int
	// waited lists the flows with waiting requests, the one that was served longest ago first.
	waited []*flow
}

// flow is a flow with requests. It is removed with its last request.
type flow struct {
	key       string
	executing int
	queue     []*waiter
}

// waiter is a request that waits. decided receives nil with a seat, or the refusal.
type waiter struct{ decided chan error }

// New returns a Controller.
func New(limits Limits) *Controller {
	return &Controller{limits: limits, flows: map[string]*flow{}}
}

// Acquire waits for a seat. The caller must call release once, after it has handled the request. The error is ErrFlowBusy,
// ErrBusy or that of ctx.
func (c *Controller) Acquire(ctx context.Context, key string) (release func(), err error) {
	w, err := c.enter(key)
	if err != nil {
		return nil, err
	}
	release = func() { c.release(key) }
	if w == nil {
		return release, nil
	}
	timer := time.NewTimer(c.limits.MaxWait)
	defer timer.Stop()
	select {
	case err = <-w.decided:
	case <-ctx.Done():
		err = c.leave(key, w, ctx.Err())
	case <-timer.C:
		err = c.leave(key, w, nil)
	}
	if err != nil {
		return nil, err
	}
	return release, nil
}

// Load returns the number of requests that are handled and that wait.
func (c *Controller) Load() (executing, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.executing, c.waiting
}

// enter takes a seat for a request, or returns a waiter.
func (c *Controller) enter(key string) (*waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flows[key]
	if f == nil {
		f = &flow{key: key}
	}
	// A free seat with waiting requests exists only if the limits of their flows keep them from it.
	if c.executing < c.limits.Seats && f.executing < c.limits.SeatsPerFlow {
		c.flows[key] = f
		c.executing++
		f.executing++
		return nil, nil
	}
	if len(f.queue) >= c.limits.WaitingPerFlow {
		return nil, ErrFlowBusy
	}
	if c.waiting >= c.limits.Waiting {
		longest := c.longest()
		if longest == nil || len(longest.queue) <= len(f.queue)+1 {
			return nil, refusal(f)
		}
		newest := longest.queue[len(longest.queue)-1]
		newest.decided <- ErrFlowBusy
		c.remove(longest, newest)
	}
	w := &waiter{decided: make(chan error, 1)}
	c.flows[key] = f
	if f.queue = append(f.queue, w); len(f.queue) == 1 {
		c.waited = append(c.waited, f)
	}
	c.waiting++
	return w, nil
}

// refusal returns the error of a flow whose request gets no seat.
func refusal(f *flow) error {
	if f.executing > 0 || len(f.queue) > 0 {
		return ErrFlowBusy
	}
	return ErrBusy
}

// longest returns the flow with the longest queue, or nil if no request waits.
func (c *Controller) longest() *flow {
	var longest *flow
	for _, f := range c.waited {
		if longest == nil || len(f.queue) > len(longest.queue) {
			longest = f
		}
	}
	return longest
}

// leave ends the wait of a request with cause, or with a refusal if cause is nil. If the request got its seat at the same
// moment, it keeps it, unless cause is set.
func (c *Controller) leave(key string, w *waiter, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case decided := <-w.decided:
		if decided == nil && cause != nil {
			c.free(key)
			return cause
		}
		return decided
	default:
	}
	f := c.flows[key]
	c.remove(f, w)
	if cause != nil {
		return cause
	}
	return refusal(f)
}

// remove removes a request from its flow's queue.
func (c *Controller) remove(f *flow, w *waiter) {
	f.queue = slices.DeleteFunc(f.queue, func(other *waiter) bool { return other == w })
	c.waiting--
	if len(f.queue) == 0 {
		c.waited = slices.DeleteFunc(c.waited, func(other *flow) bool { return other == f })
		c.forget(f)
	}
}

func (c *Controller) forget(f *flow) {
	if f.executing == 0 && len(f.queue) == 0 {
		delete(c.flows, f.key)
	}
}

func (c *Controller) release(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free(key)
}

// free returns a seat and gives free seats to waiting requests.
func (c *Controller) free(key string) {
	f := c.flows[key]
	c.executing--
	f.executing--
	c.forget(f)
	for c.executing < c.limits.Seats {
		next := c.next()
		if next == nil {
			return
		}
		w := next.queue[0]
		c.executing++
		next.executing++
		w.decided <- nil
		c.remove(next, w)
		// Flows with the same number of seats take turns.
		if len(next.queue) > 0 {
			c.waited = append(slices.DeleteFunc(c.waited, func(other *flow) bool { return other == next }), next)
		}
	}
}

// next returns the waiting flow with the fewest seats that may have another one, or nil.
func (c *Controller) next() *flow {
	var next *flow
	for _, f := range c.waited {
		if f.executing < c.limits.SeatsPerFlow && (next == nil || f.executing < next.executing) {
			next = f
		}
	}
	return next
}
