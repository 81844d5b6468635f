package maestro

import (
	"encoding/json"
	"time"

	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"
)

// maxHeartbeats is the number of agents whose heartbeats are read. A region has fewer management clusters.
const maxHeartbeats = 10_000

// decodeHeartbeats returns the last heartbeats of the agents by consumer. It returns nil if the server sends none. It leaves out an agent with a
// malformed time and keeps the others: the alert AgentSilent names the agent.
func decodeHeartbeats(event *pbv1.CloudEvent) map[string]time.Time {
	data := event.GetBinaryData()
	if len(data) == 0 {
		data = []byte(event.GetTextData())
	}
	// beat has the form of maestroapi.Heartbeat.
	var beat struct {
		Agents map[string]json.RawMessage `json:"agents"`
	}
	if len(data) == 0 || json.Unmarshal(data, &beat) != nil || len(beat.Agents) > maxHeartbeats {
		return nil
	}
	last := map[string]time.Time{}
	for consumer, text := range beat.Agents {
		var at time.Time
		if json.Unmarshal(text, &at) == nil && !at.IsZero() {
			last[consumer] = at
		}
	}
	return last
}
