package broker

import (
	"strings"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Authorizer reports whether a client may publish to a topic, or subscribe to a filter and receive matching messages. It
// corresponds to Event Grid's topic spaces and permission bindings.
type Authorizer func(client, topic string, publish bool) bool

// MaestroTopics returns the Authorizer of a Maestro region. The server publishes to sourceevents and subscribes to
// agentevents of all consumers. Every other client is the consumer with its name, with the opposite permissions.
func MaestroTopics(source, server string) Authorizer {
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
