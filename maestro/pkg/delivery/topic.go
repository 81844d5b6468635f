package delivery

import "strings"

// AgentEvents is the filter for what every consumer's agent publishes.
func AgentEvents(source string) string { return "sources/" + source + "/consumers/+/agentevents" }

func sourceEvents(source, consumer string) string {
	return "sources/" + source + "/consumers/" + consumer + "/sourceevents"
}

// consumerOf reads a consumer's name off the topic of its agent's events. The topic, not what the event says about
// itself, is what the broker has checked against the agent's certificate.
func consumerOf(topic, source string) (string, bool) {
	rest, ok := strings.CutPrefix(topic, "sources/"+source+"/consumers/")
	if !ok {
		return "", false
	}
	name, channel, ok := strings.Cut(rest, "/")
	return name, ok && channel == "agentevents" && name != ""
}
