package broker

import "strings"

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
		levels := strings.Split(topic, "/")
		if len(levels) != 5 || levels[0] != "sources" || levels[1] != source || levels[2] != "consumers" || levels[3] == "" {
			return false
		}
		consumer, channel := levels[3], levels[4]
		if client == server {
			if publish {
				return channel == "sourceevents" && !strings.ContainsAny(consumer, "+#")
			}
			return channel == "agentevents"
		}
		if consumer != client {
			return false
		}
		if publish {
			return channel == "agentevents"
		}
		return channel == "sourceevents"
	}
}
