package explanation

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// heartbeatOverdue is the age of the last heartbeat after which an agent counts as away. Agents send one every 10 seconds, and
// Cluster Service stores it after 20 seconds at most.
const heartbeatOverdue = time.Minute

// heartbeat returns whether the agent of a shard runs, from its last heartbeat. It returns no sentence for an agent that has never
// sent one.
func (f *facts) heartbeat(shard *csv1.ProvisionShard) []adminv1.Sentence {
	last := asTime(shard.GetLastHeartbeatTime())
	if last.IsZero() {
		return nil
	}
	text := "The agent runs: it sent its last heartbeat "
	if f.now.Sub(last) > heartbeatOverdue {
		text = "The agent is away: it sent its last heartbeat "
	}
	return []adminv1.Sentence{sentenceAt(adminv1.SentenceHeartbeat, text+duration(f.now.Sub(last))+" ago, at "+f.clock(last)+".", last)}
}
