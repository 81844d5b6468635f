package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// wire is a client of the broker that sends and receives events as an agent or as a server, under the control of the test.
type wire struct {
	t        testing.TB
	consumer string
	link     *mqttlink.Link

	mu       sync.Mutex
	received []cloudevents.Event
}

// agentWire connects as the consumer.
func (r *region) agentWire(consumer string) *wire {
	r.t.Helper()
	r.Issue(consumer, mesh.MaestroAgent, consumer)
	return r.wire(consumer, consumer, "sources/maestro/consumers/"+consumer+"/sourceevents")
}

// serverWire connects as a Maestro server, to send events that a real one sends only in rare situations.
func (r *region) serverWire(consumer string) *wire {
	r.t.Helper()
	return r.wire("maestro-server", consumer, "sources/maestro/consumers/"+consumer+"/agentevents")
}

func (r *region) wire(certificate, consumer, filter string) *wire {
	r.t.Helper()
	w := &wire{t: r.t, consumer: consumer}
	w.link = mqttlink.New(mqttlink.Options{
		Address: r.BrokerAddress, TLS: r.MQTT(certificate), ClientID: unique("wire"), Subscribe: []string{filter},
		Receive: func(_ context.Context, _ string, evt *cloudevents.Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.received = append(w.received, *evt)
		},
		Log: r.Log,
	})
	r.Run("wire of "+consumer, w.link.Run)
	eventually.Soon(r.t, "the wire is up", func() error { return w.link.Ready(r.t.Context()) })
	return w
}

// events returns the received events of a type, for example "spec.create_request", for a resource; an empty ID means all.
func (w *wire) events(kind, id string) []cloudevents.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []cloudevents.Event
	for _, evt := range w.received {
		if evt.Type() == eventPrefix+kind && (id == "" || evt.Extensions()["resourceid"] == id) {
			found = append(found, evt)
		}
	}
	return found
}

func (w *wire) until(kind, id string, count int) []cloudevents.Event {
	w.t.Helper()
	var found []cloudevents.Event
	eventually.Soon(w.t, fmt.Sprintf("%d events %s of resource %q", count, kind, id), func() error {
		if found = w.events(kind, id); len(found) >= count {
			return nil
		}
		return fmt.Errorf("%d so far", len(found))
	})

	return found
}

func (w *wire) send(channel, kind string, ext map[string]any, data any) {
	w.t.Helper()
	evt := cloudevents.NewEvent()
	evt.SetID(uuid.NewString())
	evt.SetSource(w.consumer + "-agent")
	if channel == "sourceevents" {
		evt.SetSource("maestro")
	}
	evt.SetType(eventPrefix + kind)
	evt.SetExtension("clustername", w.consumer)
	for name, value := range ext {
		evt.SetExtension(name, value)
	}
	text, err := json.Marshal(data)
	if err == nil {
		err = evt.SetData(cloudevents.ApplicationJSON, text)
	}
	if err == nil {
		err = w.link.Publish(w.t.Context(), "sources/maestro/consumers/"+w.consumer+"/"+channel, &evt)
	}
	if err != nil {
		w.t.Fatalf("send %s: %v", kind, err)
	}
}

// report sends a status with one true condition.
func (w *wire) report(id string, version int64, sequence int, condition string) {
	w.t.Helper()
	w.send("agentevents", "status.update_request", map[string]any{
		"resourceid": id, "resourceversion": version, "sequenceid": fmt.Sprint(sequence), "originalsource": "maestro",
		"statushash": fmt.Sprintf("%s-%d-%d", condition, version, sequence),
	}, map[string]any{"conditions": []metav1.Condition{{
		Type: condition, Status: metav1.ConditionTrue, Reason: "Test", ObservedGeneration: version, LastTransitionTime: metav1.Now(),
	}}})
}

// resync sends a spec resync with the given works.
func (w *wire) resync(held map[string]int64) {
	w.t.Helper()
	list := []map[string]any{}
	for id, version := range held {
		list = append(list, map[string]any{"resourceID": id, "resourceVersion": version})
	}
	w.send("agentevents", "spec.resync_request", map[string]any{"originalsource": ""}, map[string]any{"resourceVersions": list})
}
