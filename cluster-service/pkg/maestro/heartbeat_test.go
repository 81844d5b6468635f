package maestro

import (
	"testing"

	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"
)

func TestDecodeHeartbeats(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, data string
		want         int
	}{
		"Two agents":   {"the server sends those of all agents", `{"agents":{"mgmt-1":"2026-03-01T08:00:00Z","mgmt-2":"2026-03-01T08:00:01Z"}}`, 2},
		"Nothing":      {"other servers send no data", "", 0},
		"Malformed":    {"a malformed value is absent", `{"agents":{"mgmt-1":"yesterday"}}`, 0},
		"One of three": {"a malformed value hides no other agent", `{"agents":{"mgmt-1":"2026-03-01T08:00:00Z","mgmt-2":7,"mgmt-3":"2026-03-01T08:00:01Z"}}`, 2},
		"Null":         {"a missing value is absent", `{"agents":{"mgmt-1":null,"mgmt-2":"2026-03-01T08:00:01Z"}}`, 1},
		"Garbage":      {"other data is ignored", "[1]", 0},
	} {
		if got := decodeHeartbeats(&pbv1.CloudEvent{Data: &pbv1.CloudEvent_BinaryData{BinaryData: []byte(tc.data)}}); len(got) != tc.want {
			t.Errorf("%s: read %v, want %d: %s", name, got, tc.want, tc.reason)
		}
	}
}
