package broker

import (
	"strings"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Permit says whether the client of this name may publish to a topic, or subscribe to a filter and receive what it
// matches. It is Event Grid's topic spaces and permission bindings in one function.
type Permit func(client, topic string, publish bool) bool

// MaestroTopics are the topic spaces of a Maestro region. The server publishes sourceevents and subscribes to
// agentevents of every consumer; any other client is the consumer of its own name and has the two the other way round.
func MaestroTopics(source, server string) Permit {
	return func(client, topic string, publish bool) bool {
		if rest, shared := strings.CutPrefix(topic, "$share/"); shared && !publish {
			_, topic, _ = strings.Cut(rest, "/")
		}
		topicSource, consumer, channel, ok := maestroapi.ParseTopic(topic)
		if !ok || topicSource != source {
			return false
		}
		if client == server {
			if publish {
				return channel == maestroapi.ChannelSourceEvents && !strings.ContainsAny(consumer, "+#")
			}
			return channel == maestroapi.ChannelAgentEvents
		}
		if consumer != client {
			return false
		}
		if publish {
			return channel == maestroapi.ChannelAgentEvents
		}
		return channel == maestroapi.ChannelSourceEvents
	}
}
