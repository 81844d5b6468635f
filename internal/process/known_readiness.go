package process

import (
	"context"
	"sync/atomic"
	"time"
)

// readinessInterval is the pause between two checks of KnownReadiness.
const readinessInterval = 5 * time.Second

// KnownReadiness holds the result of the last check of all dependencies of a process. Metrics report it, because a scrape must not wait for
// a dependency that does not respond: Prometheus would lose all metrics of the process. It is safe for concurrent use.
type KnownReadiness struct {
	process *Process
	ready   atomic.Bool
}

// NewKnownReadiness returns the readiness of a process, which is false until the first check of Watch has ended.
func NewKnownReadiness(p *Process) *KnownReadiness { return &KnownReadiness{process: p} }

// Ready returns the result of the last check. It does not wait.
func (k *KnownReadiness) Ready() bool { return k.ready.Load() }

// Watch checks all dependencies every five seconds until ctx ends. A check takes two seconds at most.
func (k *KnownReadiness) Watch(ctx context.Context) {
	ticker := time.NewTicker(readinessInterval)
	defer ticker.Stop()
	for {
		ready := k.process.CheckReadiness(ctx).Ready
		if ctx.Err() != nil {
			return // the check ended with ctx
		}
		k.ready.Store(ready)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
