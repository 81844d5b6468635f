package kubeapitest

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// Shared is the management cluster of a test binary, which is started when the first test calls Cluster. Call Close in
// TestMain.
type Shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Cluster returns the management cluster. It fails the test if the cluster cannot be started.
func (s *Shared) Cluster(t testing.TB) *Cluster {
	t.Helper()
	s.once.Do(func() { s.cluster, s.err = Open(context.Background()) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

// Close stops the cluster if it was started.
func (s *Shared) Close() {
	if s.cluster != nil {
		s.cluster.Close()
	}
}

// Pool lends management clusters to tests, each to one test at a time. It has one cluster, whose start uses more CPU time than most tests. In
// `make nightly`, which runs tests that wait for long, it has up to one for each processor and at least two. Call Close in TestMain.
type Pool struct {
	mu        sync.Mutex
	free, all []*Cluster
	// lent has a value for each cluster that a test uses.
	lent chan struct{}
}

// Cluster returns a management cluster for the duration of a test. prepare is called for a new one. Only clusters of
// passed tests are reused, because a failed test may leave objects behind.
func (p *Pool) Cluster(t testing.TB, prepare func(ctx context.Context, c *Cluster) error) *Cluster {
	t.Helper()
	lent := p.slots()
	lent <- struct{}{}
	t.Cleanup(func() { <-lent })
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

func (p *Pool) slots() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lent == nil {
		size := 1
		if nightly.Run() {
			size = max(2, runtime.NumCPU())
		}
		p.lent = make(chan struct{}, size)
	}
	return p.lent
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

// Close stops all clusters. No test may be running.
func (p *Pool) Close() {
	for _, c := range p.all {
		c.Close()
	}
}
