package kubeapitest

import (
	"context"
	"sync"
	"testing"
)

// Shared is the one management cluster of a test binary, which is started when the first test asks. Close it in TestMain.
type Shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Cluster gives the management cluster.
func (s *Shared) Cluster(t testing.TB) *Cluster {
	t.Helper()
	s.once.Do(func() { s.cluster, s.err = Open(context.Background()) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Close ends it, if anybody has asked for it.
func (s *Shared) Close() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

// Pool hands management clusters from test to test, each to one at a time, and starts another when none is free. Close it
// in TestMain.
type Pool struct {
	mu        sync.Mutex
	free, all []*Cluster
}

// Cluster gives a management cluster for as long as a test runs. One that is new is prepared first. The next test gets the
// cluster of one that has passed; what a test leaves behind that has failed disturbs nobody else.
func (p *Pool) Cluster(t testing.TB, prepare func(ctx context.Context, c *Cluster) error) *Cluster {
	t.Helper()
	c := p.take()
	if c == nil {
		var err error
		if c, err = Open(context.Background()); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		p.all = append(p.all, c)
		p.mu.Unlock()
		if err := prepare(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Report())
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, c)
	})
	return c
}

func (p *Pool) take() *Cluster {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	c := p.free[last]
	p.free = p.free[:last]
	return c
}

// Close ends all that were started. No test may be running.
func (p *Pool) Close() {
	for _, c := range p.all {
		c.Close()
	}
}
