package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
)

// lastHeartbeat returns the last heartbeat of the agent of a consumer that a subscriber received; zero if none.
func (s *source) lastHeartbeat(consumer string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agents[consumer]
}

func (s *source) untilHeartbeatAfter(consumer string, at time.Time) time.Time {
	s.t.Helper()
	var last time.Time
	eventually.Soon(s.t, "a heartbeat of "+consumer, func() error {
		if last = s.lastHeartbeat(consumer); last.After(at) {
			return nil
		}
		return fmt.Errorf("the last one was at %s", last)
	})

	return last
}

// TestHeartbeatsDifferFromSilence runs an agent without works, one with a work, and one that stops. Every replica sends the last
// heartbeats of all agents.
func TestHeartbeatsDifferFromSilence(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	first, second := r.StartServer(), r.StartServer()
	idle, stopped, never := r.consumer(first), r.consumer(first), r.consumer(first)
	options := agent.Options{Cluster: cluster(t), Heartbeat: 50 * time.Millisecond}
	r.StartAgent(idle, options)
	process := r.StartAgent(stopped, options)
	for _, server := range []*source{r.source(first, "cluster-service"), r.source(second, "another-source")} {
		server.subscribe()
		at := server.untilHeartbeatAfter(idle, server.untilHeartbeatAfter(idle, time.Time{}))
		server.untilHeartbeatAfter(stopped, time.Time{})
		t.Logf("a heartbeat arrived %s after it was stored", time.Since(at))
		if last := server.lastHeartbeat(never); !last.IsZero() {
			t.Errorf("an agent that does not exist sent a heartbeat at %s", last)
		}
	}
	process.Stop()
	cs := r.source(first, "cluster-service")
	cs.subscribe()
	last := cs.untilHeartbeatAfter(stopped, time.Time{})
	// Heartbeats that were in transit are stored before those that the other agent sends later.
	settled := cs.untilHeartbeatAfter(idle, last.Add(time.Second))
	silent := cs.lastHeartbeat(stopped)
	cs.untilHeartbeatAfter(idle, settled.Add(time.Second))
	if again := cs.lastHeartbeat(stopped); !again.Equal(silent) {
		t.Errorf("a stopped agent sent a heartbeat at %s after %s", again, silent)
	}
}
