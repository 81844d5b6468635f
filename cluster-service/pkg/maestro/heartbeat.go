package maestro

import (
	"encoding/json"
	"time"

	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// maxHeartbeats is the number of agents whose heartbeats are read. A region has fewer management clusters.
const maxHeartbeats = 10_000

// decodeHeartbeats returns the last heartbeats of the agents by consumer. It returns nil if the server sends none.
func decodeHeartbeats(event *pbv1.CloudEvent) map[string]time.Time {
	data := event.GetBinaryData()
	if len(data) == 0 {
		data = []byte(event.GetTextData())
	}
	var beat maestroapi.Heartbeat
	if len(data) == 0 || json.Unmarshal(data, &beat) != nil || len(beat.Agents) > maxHeartbeats {
		return nil
	}
	return beat.Agents
}
