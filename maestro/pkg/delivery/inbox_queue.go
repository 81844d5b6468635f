package delivery

import (
	"sync/atomic"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

const (
	// inboxEvents bounds the events of an agent that wait to be processed, and inboxBytes their size together with that of the
	// events in process. So an agent cannot use the memory that other agents need, with many events or with large ones.
	inboxEvents = 4096
	inboxBytes  = 16 << 20
	// eventOverhead is the assumed size of an event without its data.
	eventOverhead = 1 << 10
)

// The limits by which an event is refused, which are values of a metric.
const (
	limitEvents = "events"
	limitBytes  = "bytes"
	limitEvent  = "event"
)

// inbox queues the events of one agent.
type inbox struct {
	events chan *cloudevents.Event
	bytes  atomic.Int64
	// overflowed is set from the first refused event until everything is processed.
	overflowed atomic.Bool
}

func newInbox() *inbox { return &inbox{events: make(chan *cloudevents.Event, inboxEvents)} }

// sizeOf returns the size of an event in memory, approximately.
func sizeOf(evt *cloudevents.Event) int64 { return int64(len(evt.Data())) + eventOverhead }

// add queues an event, or returns the limit by which it is refused. It does not block. first is set for the first refusal
// since everything was processed.
func (q *inbox) add(evt *cloudevents.Event) (limit string, first bool) {
	size := sizeOf(evt)
	switch {
	case size > mqttlink.MaxMessageBytes+eventOverhead:
		limit = limitEvent
	case q.bytes.Add(size) > inboxBytes:
		q.bytes.Add(-size)
		limit = limitBytes
	default:
		select {
		case q.events <- evt:
			return "", false
		default:
			q.bytes.Add(-size)
			limit = limitEvents
		}
	}
	return limit, !q.overflowed.Swap(true)
}

// done returns the bytes of processed events.
func (q *inbox) done(bytes int64) {
	if q.bytes.Add(-bytes) == 0 {
		q.overflowed.Store(false)
	}
}
