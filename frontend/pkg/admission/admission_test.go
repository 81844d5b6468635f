package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// requests are concurrent requests of a test. Each holds its seat until end is closed.
type requests struct {
	*testing.T
	controller *Controller
	end        chan struct{}
	wg         sync.WaitGroup
	seated     map[string]*atomic.Int64
	flowBusy   map[string]*atomic.Int64
	busy       map[string]*atomic.Int64
}

func newRequests(t *testing.T, limits Limits, keys ...string) *requests {
	r := &requests{T: t, controller: New(limits), end: make(chan struct{}),
		seated: map[string]*atomic.Int64{}, flowBusy: map[string]*atomic.Int64{}, busy: map[string]*atomic.Int64{}}
	for _, key := range keys {
		r.seated[key], r.flowBusy[key], r.busy[key] = &atomic.Int64{}, &atomic.Int64{}, &atomic.Int64{}
	}
	return r
}

// send sends n requests one after the other, each without waiting for its response.
func (r *requests) send(ctx context.Context, key string, n int) {
	for range n {
		r.wg.Go(func() {
			release, err := r.controller.Acquire(ctx, key)
			switch {
			case errors.Is(err, ErrFlowBusy):
				r.flowBusy[key].Add(1)
			case errors.Is(err, ErrBusy):
				r.busy[key].Add(1)
			case err == nil:
				r.seated[key].Add(1)
				<-r.end
				release()
			}
		})
		synctest.Wait()
	}
}

func (r *requests) check(reason, key string, seated, flowBusy, busy int64) {
	r.Helper()
	if s, f, b := r.seated[key].Load(), r.flowBusy[key].Load(), r.busy[key].Load(); s != seated || f != flowBusy || b != busy {
		r.Errorf("%s: %s has %d seats, %d and %d refusals; want %d, %d and %d", reason, key, s, f, b, seated, flowBusy, busy)
	}
}

// finish ends all requests and checks that the controller has forgotten them.
func (r *requests) finish() {
	r.Helper()
	close(r.end)
	r.wg.Wait()
	if executing, waiting := r.controller.Load(); executing != 0 || waiting != 0 || len(r.controller.flows) != 0 || len(r.controller.waited) != 0 {
		r.Errorf("at the end there are %d seats, %d waiting requests and %d flows", executing, waiting, len(r.controller.flows))
	}
}

func TestFlowIsRefusedAboveItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t, Limits{Seats: 8, SeatsPerFlow: 3, Waiting: 10, WaitingPerFlow: 2, MaxWait: time.Second}, "flood", "quiet")
		r.send(t.Context(), "flood", 20)
		r.check("three have a seat and two wait", "flood", 3, 15, 0)
		r.send(t.Context(), "quiet", 3)
		r.check("there are seats left", "quiet", 3, 0, 0)
		time.Sleep(time.Second)
		synctest.Wait()
		r.check("the waiting ones end after the longest wait", "flood", 3, 17, 0)
		r.finish()
	})
}

// TestNewestOfLongestQueueIsRefused fills all seats and all places of the queue by flows that stay within their own limits.
func TestNewestOfLongestQueueIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t, Limits{Seats: 4, SeatsPerFlow: 4, Waiting: 4, WaitingPerFlow: 4, MaxWait: time.Hour}, "flood", "quiet", "second")
		r.send(t.Context(), "flood", 8)
		r.check("all seats and places are taken", "flood", 4, 0, 0)
		r.send(t.Context(), "quiet", 1)
		r.send(t.Context(), "second", 1)
		r.check("its newest requests make place", "flood", 4, 2, 0)
		r.check("the request waits", "quiet", 0, 0, 0)
		r.finish()
		r.check("the other flows have been served", "quiet", 1, 0, 0)
		r.check("the other flows have been served", "second", 1, 0, 0)
		r.check("the others wait", "flood", 6, 2, 0)
	})
}

// TestFreeSeatGoesToFlowWithFewest releases seats one by one.
func TestFreeSeatGoesToFlowWithFewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Limits{Seats: 3, SeatsPerFlow: 3, Waiting: 10, WaitingPerFlow: 10, MaxWait: time.Hour})
		var held []func()
		for range 3 {
			release := must.Get(c.Acquire(t.Context(), "flood"))(t)
			held = append(held, release)
		}
		order := make(chan string, 10)
		var wg sync.WaitGroup
		for _, key := range []string{"flood", "flood", "quiet", "quiet", "second"} {
			wg.Go(func() {
				release, err := c.Acquire(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				order <- key
				held = append(held, release)
			})
			synctest.Wait()
		}
		// The flood waits first, but holds more seats than the others.
		for _, want := range []string{"quiet", "second", "flood", "quiet"} {
			next := held[0]
			held = held[1:]
			next() // a waiting request gets the seat and appends to held
			synctest.Wait()
			if got := <-order; got != want {
				t.Errorf("the seat went to %s, want %s", got, want)
			}
		}
		for len(held) > 0 {
			next := held[0]
			held = held[1:]
			next()
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestBusyServerRefusesQuietFlowOnlyAfterWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t, Limits{Seats: 2, SeatsPerFlow: 2, Waiting: 2, WaitingPerFlow: 2, MaxWait: time.Minute}, "flood", "quiet", "second", "third")
		r.send(t.Context(), "flood", 2)
		r.send(t.Context(), "quiet", 1)
		r.send(t.Context(), "second", 1)
		r.send(t.Context(), "third", 1)
		r.check("each queue has one request, as its own would", "third", 0, 0, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.check("no seat became free", "quiet", 0, 0, 1)
		r.finish()
	})
}

func TestCanceledRequestLeavesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(t, Limits{Seats: 1, SeatsPerFlow: 1, Waiting: 1, WaitingPerFlow: 1, MaxWait: time.Hour}, "a", "b")
		r.send(t.Context(), "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		r.send(ctx, "b", 1)
		cancel()
		synctest.Wait()
		if _, waiting := r.controller.Load(); waiting != 0 {
			t.Errorf("%d requests wait", waiting)
		}
		r.send(t.Context(), "a", 1)
		r.check("the place is free again", "a", 1, 0, 0)
		r.finish()
	})
}

// TestLimitsHold sends random requests of many flows, some of which end early, and counts at every moment.
func TestLimitsHold(t *testing.T) {
	limits := Limits{Seats: 6, SeatsPerFlow: 2, Waiting: 8, WaitingPerFlow: 3, MaxWait: 3 * time.Millisecond}
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			c := New(limits)
			var executing atomic.Int64
			perFlow := make([]atomic.Int64, 5)
			var wg sync.WaitGroup
			for i := range 400 {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				pause, length, patience, flow := random.IntN(100), random.IntN(4), random.IntN(6), random.IntN(len(perFlow))
				wg.Go(func() {
					time.Sleep(time.Duration(pause) * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(patience)*time.Millisecond)
					defer cancel()
					release, err := c.Acquire(ctx, fmt.Sprint(flow))
					if err != nil {
						return
					}
					if now := executing.Add(1); now > int64(limits.Seats) {
						t.Errorf("%d requests are handled", now)
					}
					if now := perFlow[flow].Add(1); now > int64(limits.SeatsPerFlow) {
						t.Errorf("%d requests of one flow are handled", now)
					}
					time.Sleep(time.Duration(length) * time.Millisecond)
					perFlow[flow].Add(-1)
					executing.Add(-1)
					release()
				})
			}
			wg.Wait()
			if e, w := c.Load(); e != 0 || w != 0 || len(c.flows) != 0 || len(c.waited) != 0 {
				t.Errorf("seed %d: at the end %d, %d, %d flows", seed, e, w, len(c.flows))
			}
		})
	}
}

// BenchmarkAcquire measures a request that gets a seat at once.
func BenchmarkAcquire(b *testing.B) {
	c := New(Limits{Seats: 512, SeatsPerFlow: 64, Waiting: 512, WaitingPerFlow: 64, MaxWait: time.Second})
	b.ReportAllocs()
	for b.Loop() {
		release := must.Get(c.Acquire(b.Context(), "a"))(b)
		release()
	}
}
