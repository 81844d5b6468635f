package delivery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// agentsInterval is the interval at which the times of reports are stored, and so their precision.
const agentsInterval = 10 * time.Second

// Agents records when the agent of each shard last reported a status and when it last sent a heartbeat, and since when an agent with
// unanswered works has not reported. A shard whose agent has not reported for a long time gets no clusters.
type Agents struct {
	Store   *store.Store
	Metrics *Metrics
	// Interval is the interval at which the times are stored; 0 means 10 seconds.
	Interval time.Duration
	Log      *slog.Logger

	mu    sync.Mutex
	heard map[string]time.Time
	beats map[string]time.Time
}

// Reported notes that the agent of a shard reported a new status. It does not block.
func (a *Agents) Reported(shard string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard == nil {
		a.heard = map[string]time.Time{}
	}
	a.heard[shard] = a.Store.Now()
}

// Heartbeats notes the times of the last heartbeats of agents, by shard. It does not block.
func (a *Agents) Heartbeats(last map[string]time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.beats = last
}

// Run stores the times until ctx ends.
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
		heard, beats := a.heard, a.beats
		a.heard, a.beats = nil, nil
		a.mu.Unlock()
		// Times that could not be stored are dropped: an agent with works reports again.
		shards, err := a.Store.RecordAgentReports(ctx, heard, beats)
		if err != nil && ctx.Err() == nil {
			a.Log.Warn("storing the reports of agents failed", logkey.Error, err)
		}
		if err == nil {
			a.Metrics.showShards(shards)
		}
	}
}
