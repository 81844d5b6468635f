package maestroapi

import "testing"

func TestParseTopic(t *testing.T) {
	for name, want := range map[string]struct {
		consumer, channel string
		ok                bool
	}{
		SourceEventsTopic("maestro", "mgmt-1"):           {"mgmt-1", ChannelSourceEvents, true},
		AgentEventsTopic("maestro", "+"):                 {"+", ChannelAgentEvents, true},
		"sources/maestro/consumers/mgmt-1/other":         {},
		"sources/maestro/consumers//agentevents":         {},
		"sources/maestro/consumers/mgmt-1":               {},
		"sources/maestro/consumers/mgmt-1/agentevents/x": {},
		"sources/maestro/clusters/mgmt-1/agentevents":    {},
		"#": {},
	} {
		source, consumer, channel, ok := ParseTopic(name)
		if ok != want.ok || ok && (source != "maestro" || consumer != want.consumer || channel != want.channel) {
			t.Errorf("%s: %q, %q, %q, %v", name, source, consumer, channel, ok)
		}
	}
}
