package event

import (
	"encoding/json"
	"fmt"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/uuid"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// EncodeHeartbeat returns the heartbeat of an agent.
func EncodeHeartbeat(agent, consumer string) *cloudevents.Event {
	evt := cloudevents.NewEvent()
	evt.SetID(uuid.NewString())
	evt.SetSource(agent)
	evt.SetType(maestroapi.TypeHeartbeat)
	evt.SetExtension(maestroapi.ExtensionClusterName, consumer)
	return &evt
}

// IsHeartbeat reports whether an event is a heartbeat.
func IsHeartbeat(evt *cloudevents.Event) bool { return evt.Type() == maestroapi.TypeHeartbeat }

// EncodeAgentHeartbeats returns the data of the server's heartbeat to a subscriber: when each agent sent its last heartbeat.
func EncodeAgentHeartbeats(last map[string]time.Time) ([]byte, error) {
	data, err := json.Marshal(maestroapi.Heartbeat{Agents: last})
	if err != nil {
		return nil, fmt.Errorf("encoding the heartbeats of agents: %w", err)
	}
	return data, nil
}
