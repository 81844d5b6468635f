package crashsweep

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Process is one that dies in plays, each time replaced by another, and lives on between them. Whatever it writes passes
// Point; what it writes by HTTP does where its client goes through Transport.
type Process struct {
	deaths atomic.Pointer[Deaths] // those of the play that goes on; nil between plays
	wrote  atomic.Int64           // when a write was last begun or ended, in nanoseconds

	mu    sync.Mutex
	start func() (end func())
	end   func()
}

// Start begins the first life. start begins a life and returns what ends it, and all of it.
func (p *Process) Start(start func() (end func())) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start, p.end = start, start()
}

// End ends the last life.
func (p *Process) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// replace has the next one take over.
func (p *Process) replace(d *Deaths) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
	d.Revive()
	p.end = p.start()
}

// During has the process die at the play's points while do goes on. In the end one lives.
func (p *Process) During(d *Deaths, do func()) {
	over := make(chan struct{})
	p.deaths.Store(d)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-d.Died():
				p.replace(d)
			}
		}
	})
	defer func() {
		close(over)
		group.Wait()
		if d.Dead() {
			p.replace(d)
		}
		p.deaths.Store(nil)
	}()
	do()
}

// Point is the play's, and nothing between plays.
func (p *Process) Point(name string) error {
	p.wrote.Store(time.Now().UnixNano())
	if d := p.deaths.Load(); d != nil {
		return d.Point(name)
	}
	return nil
}

// Dead says whether the process may do nothing any more.
func (p *Process) Dead() bool {
	d := p.deaths.Load()
	return d != nil && d.Dead()
}

// Rests is nil if the process lives and has begun or ended no write for a while.
func (p *Process) Rests(quiet time.Duration) error {
	if p.Dead() {
		return ErrDead
	}
	if since := time.Since(time.Unix(0, p.wrote.Load())); since < quiet {
		return fmt.Errorf("the process wrote %s ago", since)
	}
	return nil
}

// Stir says that the process is about to write, although it has not begun to.
func (p *Process) Stir() { p.wrote.Store(time.Now().UnixNano()) }

// Transport is the process's way to an API server: each request that changes something is a point before it is sent and one
// when it was answered. A dead process reads nothing either.
func (p *Process) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet || strings.HasSuffix(request.URL.Path, "reviews") { // which is a question that is posted
			if p.Dead() {
				return refuse(request)
			}
			return next.RoundTrip(request)
		}
		defer p.Stir()
		what := request.Method + " " + request.URL.Path
		if p.Point("before "+what) != nil {
			return refuse(request)
		}
		response, err := next.RoundTrip(request)
		if err == nil && p.Point("after "+what) != nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			return nil, ErrDead
		}
		return response, err
	})
}

func refuse(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
	return nil, ErrDead
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
