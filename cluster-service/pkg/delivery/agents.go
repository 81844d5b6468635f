package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// agentsInterval is how often it is stored when agents were heard, and how exactly it is known since when one is silent.
const agentsInterval = 10 * time.Second

// Agents keeps when the agent of each shard was last heard, and since when one that has works to answer has not. A shard
// whose agent is silent for long gets no clusters.
type Agents struct {
	Store *store.Store
	// Interval is how often it is stored; 0 means every 10 seconds.
	Interval time.Duration

	mu    sync.Mutex
	heard map[string]time.Time
}

// Reported notes that the agent of a shard said something new. It does not block.
func (a *Agents) Reported(shard string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard == nil {
		a.heard = map[string]time.Time{}
	}
	a.heard[shard] = a.Store.Now()
}

// Run stores until ctx is over.
func (a *Agents) Run(ctx context.Context) {
	interval := a.Interval
	if interval == 0 {
		interval = agentsInterval
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.mu.Lock()
		heard := a.heard
		a.heard = nil
		a.mu.Unlock()
		// What could not be stored is not missed: an agent that is needed will be heard again.
		if err := a.Store.RecordAgentReports(ctx, heard); err != nil && ctx.Err() == nil {
			slog.Warn("storing when agents were heard failed", "error", err)
		}
	}
}
