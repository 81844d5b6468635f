package event

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/payload"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/refusalcost"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// maxData is the most data of an event of an agent: the broker's limit of a message.
const maxData = 512 << 10

// eachDecoder calls compare with each kind of an agent's event: its accepted data, data that is refused, and its decoder.
func eachDecoder(tb testing.TB, compare func(name string, accepted []byte, refused map[string][]byte, decode func([]byte) error)) {
	conditions := strings.Repeat(`{"type":"Applied","status":"True","reason":"AppliedManifestComplete","message":"applied","lastTransitionTime":"2026-03-01T12:00:00Z"},`, 20)
	r := &resource.Resource{ID: "id", Source: "cluster-service", Consumer: "mgmt-1", Version: 2, Metadata: json.RawMessage(`{"name":"theirs"}`), Status: &resource.Status{
		ResourceID: "id", Consumer: "mgmt-1", Version: 1, Agent: "mgmt-1-agent", Sequence: "42", Hash: "h",
		Body: json.RawMessage(`{"conditions":[` + strings.TrimSuffix(conditions, ",") + `],"resourceStatus":[]}`)}}
	status := must.Get(EncodeStatus(r))(tb)
	held := make([]payload.ResourceVersion, 1000)
	for i := range held {
		held[i] = payload.ResourceVersion{ResourceID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), ResourceVersion: 1}
	}
	resyncs := must.Get(EncodeSpecResync("agent", "mgmt-1", "resync", held))(tb)
	for name, tc := range map[string]struct {
		event  *cloudevents.Event
		decode func(*cloudevents.Event) error
	}{
		"status": {status, func(evt *cloudevents.Event) error { _, err := DecodeStatus(evt); return err }},
		"resync": {resyncs[0], func(evt *cloudevents.Event) error {
			r, err := DecodeSpecResync(evt)
			if err == nil {
				err = r.Ignored.Err()
			}
			return err
		}},
	} {
		refused := refusalcost.Texts(maxData)
		delete(refused, "same field") // events of agents may have a field twice: nothing but the last value is used
		delete(refused, "same name at the end")
		maps.Copy(refused, map[string][]byte{"wrong type": []byte(`{"conditions":1,"resourceVersions":[` + strings.Repeat(`{"resourceID":"a","resourceVersion":1},`, 1000) + `1]}`),
			"malformed elements": []byte(`{"conditions":1,"resourceVersions":[` + strings.Repeat(`{"resourceID":"00000000-0000-0000-0000-000000000000","resourceVersion":"1"},`, 1000) + `1]}`)})
		compare(name, tc.event.Data(), refused, func(content []byte) error {
			evt := *tc.event
			evt.DataEncoded = content
			return tc.decode(&evt)
		})
	}
}

// TestRefusedEventsNeedNoMoreMemory compares events of agents that are refused with accepted ones.
func TestRefusedEventsNeedNoMoreMemory(t *testing.T) {
	eachDecoder(t, func(name string, accepted []byte, refused map[string][]byte, decode func([]byte) error) {
		t.Run(name, func(t *testing.T) { refusalcost.CheckMemory(t, accepted, refused, decode) })
	})
}

// BenchmarkRefusedEvents compares events of agents that are refused with accepted ones.
func BenchmarkRefusedEvents(b *testing.B) {
	eachDecoder(b, func(name string, accepted []byte, refused map[string][]byte, decode func([]byte) error) {
		b.Run(name, func(b *testing.B) { refusalcost.Compare(b, accepted, refused, decode) })
	})
}
