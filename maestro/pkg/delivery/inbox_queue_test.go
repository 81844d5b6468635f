package delivery

import (
	"fmt"
	"log/slog"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

func eventOf(t *testing.T, size int) *cloudevents.Event {
	t.Helper()
	evt := cloudevents.NewEvent()
	must.Do(t, evt.SetData(cloudevents.TextPlain, make([]byte, size)))
	return &evt
}

// floodedConsumer returns a consumer whose events nobody processes.
func floodedConsumer() *consumer {
	d := &Dispatcher{metrics: newMetrics(prometheus.NewRegistry())}
	c := &consumer{name: "mgmt-1", dispatcher: d, log: slog.New(slog.DiscardHandler), wakeup: make(chan struct{}, 1), inbox: newInbox()}
	d.o.Log = c.log
	return c
}

// TestFloodingAgentUsesItsBytes sends the largest messages of an agent while nothing is processed. The events that wait stay
// within the agent's bytes, also while some of them are in process, and the others are counted.
func TestFloodingAgentUsesItsBytes(t *testing.T) {
	c := floodedConsumer()
	const messages = 100
	for range messages {
		c.receive(eventOf(t, mqttlink.MaxMessageBytes))
	}
	size := sizeOf(eventOf(t, mqttlink.MaxMessageBytes))
	waiting := int64(len(c.inbox.events))
	if want := inboxBytes / size; waiting != want {
		t.Errorf("%d events of %d bytes wait, want %d", waiting, size, want)
	}
	if got := testutil.ToFloat64(c.dispatcher.metrics.dropped.WithLabelValues(limitBytes)); got != float64(messages-waiting) {
		t.Errorf("%v events are counted as dropped, want %d", got, messages-waiting)
	}
	if !c.statusResyncNeeded.Load() {
		t.Error("the dropped statuses are not requested")
	}
	<-c.inbox.events
	if limit, _ := c.inbox.add(eventOf(t, mqttlink.MaxMessageBytes)); limit != limitBytes {
		t.Errorf("while an event is in process, its bytes are given to another one: %q", limit)
	}
	c.inbox.done(size)
	if limit, _ := c.inbox.add(eventOf(t, mqttlink.MaxMessageBytes)); limit != "" {
		t.Errorf("after an event was processed, the next one is refused by its %s", limit)
	}
}

// TestRefusalIsLoggedOnce checks that first is set once until everything is processed, and that many small events are refused by
// their number.
func TestRefusalIsLoggedOnce(t *testing.T) {
	q := newInbox()
	for range inboxEvents {
		if limit, _ := q.add(eventOf(t, 0)); limit != "" {
			t.Fatalf("an event is refused by its %s", limit)
		}
	}
	for i, want := range []bool{true, false} {
		if limit, first := q.add(eventOf(t, 0)); limit != limitEvents || first != want {
			t.Errorf("refusal %d: limit %q, first %v", i, limit, first)
		}
	}
	for range inboxEvents {
		q.done(sizeOf(<-q.events))
	}
	if limit, first := q.add(eventOf(t, inboxBytes)); limit != limitEvent || !first {
		t.Errorf("an event that no broker delivers: limit %q, first %v", limit, first)
	}
}

// TestEndlessResyncIsForgotten repeats a part of a list with other works each time.
func TestEndlessResyncIsForgotten(t *testing.T) {
	c := floodedConsumer()
	refused := false
	for i := 0; !refused && i < 100; i++ {
		_, _, err := c.joinParts(&event.SpecResyncRequest{ID: "endless", Part: 1, Parts: 2, Held: map[string]int64{fmt.Sprint(i): 1}}, 500<<10)
		refused = err != nil
	}
	if !refused || c.parts.held != nil {
		t.Errorf("a list that never ends is kept with %d works", len(c.parts.held))
	}
	if held, _, err := c.joinParts(&event.SpecResyncRequest{ID: "next", Part: 1, Parts: 2, Held: map[string]int64{"a": 1}}, 100); held != nil || err != nil {
		t.Fatalf("the first part of the next list: %v, %v", held, err)
	}
	if held, _, err := c.joinParts(&event.SpecResyncRequest{ID: "next", Part: 2, Parts: 2, Held: map[string]int64{"b": 2}}, 100); len(held) != 2 || err != nil {
		t.Errorf("the next list: %v, %v", held, err)
	}
}
