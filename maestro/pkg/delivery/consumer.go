package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/payload"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

const (
	// sendBatch bounds how many deliveries are read at once; with the largest bundles that is 16 MB.
	sendBatch = 32
	// inboxLimit bounds an agent's events waiting to be worked through.
	inboxLimit = 4096
	// statusBatch bounds how many statuses share a transaction.
	statusBatch = 128
	// hashesPerResync keeps a status resync well under the size limit.
	hashesPerResync = 1500
	// poisonAttempts is how often one delivery may end a connection that had worked before it is held to be the reason.
	poisonAttempts = 6
)

// consumer is one consumer's two loops.
type consumer struct {
	name string
	d    *Dispatcher
	log  *slog.Logger

	cancel context.CancelFunc
	ended  sync.WaitGroup
	work   chan struct{}
	inbox  chan *cloudevents.Event
	// wantStatuses asks for a status resync before anything else is sent.
	wantStatuses atomic.Bool
	// breaks counts the times a resource was being sent when a connection broke that had worked for the consumer before;
	// healthy is the number of the connection that worked last. Only the sending loop touches them.
	breaks  map[string]int
	healthy int64
	// parts is a list of what the agent holds that comes in several events; only the inbox loop touches it.
	parts struct {
		id   string
		of   int64
		got  map[int64]bool
		held map[string]int64
	}
}

func newConsumer(name string, d *Dispatcher) *consumer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &consumer{
		name: name, d: d, log: d.o.Log.With("consumer", name), cancel: cancel,
		work: make(chan struct{}, 1), inbox: make(chan *cloudevents.Event, inboxLimit), breaks: map[string]int{},
	}
	c.wantStatuses.Store(true)
	c.ended.Add(2)
	go func() { defer c.ended.Done(); c.send(ctx) }()
	go func() { defer c.ended.Done(); c.listen(ctx) }()
	return c
}

func (c *consumer) stop() {
	c.cancel()
	c.ended.Wait()
}

func (c *consumer) wake() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

func (c *consumer) askStatuses() {
	c.wantStatuses.Store(true)
	c.wake()
}

// receive queues an agent's event. A full inbox never blocks the link, which other consumers share: what does not fit
// is dropped and asked for again.
func (c *consumer) receive(evt *cloudevents.Event) {
	select {
	case c.inbox <- evt:
	default:
		c.d.metrics.missed.Inc()
		c.askStatuses()
	}
}

// send is the loop that empties the outbox.
func (c *consumer) send(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := 100 * time.Millisecond
	for {
		pause, err := c.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !errors.Is(err, mqttlink.ErrDown) {
				c.d.metrics.failures.Inc()
				c.log.Warn("sending stopped; trying again", "error", err, "retryIn", retry.String())
			}
			pause, retry = retry, min(retry*2, c.d.o.SafetyPoll)
		default:
			retry = 100 * time.Millisecond
		}
		if pause == 0 {
			continue
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-c.work:
		case <-timer.C:
		}
	}
}

// pass sends what is due once, and says how long to wait when nothing says otherwise. Zero means: there may be more.
func (c *consumer) pass(ctx context.Context) (pause time.Duration, err error) {
	if c.d.o.Link.Ready(ctx) != nil {
		return 0, mqttlink.ErrDown
	}
	if c.wantStatuses.Swap(false) {
		if err := c.resyncStatuses(ctx); err != nil {
			c.wantStatuses.Store(true)
			return 0, err
		}
	}
	fresh, err := c.lane(ctx, store.NewWork, sendBatch)
	if err != nil {
		return 0, err
	}
	// Resyncs get what their window leaves, however much new work there is, and new work never waits for them.
	outstanding, next, err := c.d.o.Store.Outstanding(ctx, c.name, store.Resync)
	if err != nil {
		return 0, err
	}
	again := 0
	if room := c.d.o.ResyncWindow - outstanding; room > 0 {
		if again, err = c.lane(ctx, store.Resync, min(room, sendBatch)); err != nil {
			return 0, err
		}
	}
	if fresh+again > 0 {
		return 0, nil
	}
	pause = c.d.o.SafetyPoll
	if !next.IsZero() {
		pause = min(pause, max(time.Until(next), 10*time.Millisecond))
	}
	return pause, nil
}

// lane sends a lane's due deliveries, one after the other.
func (c *consumer) lane(ctx context.Context, lane store.Lane, limit int) (int, error) {
	due, err := c.d.o.Store.Due(ctx, c.name, lane, limit)
	if err != nil || len(due) == 0 {
		return 0, err
	}
	sent := make([]*store.Delivery, 0, len(due))
	var resent []payload.ResourceStatusHash
	var failed error
	for _, delivery := range due {
		if failed = c.deliver(ctx, delivery); failed != nil {
			break
		}
		sent = append(sent, delivery)
		if delivery.Attempts > 0 && delivery.Resource.DeletedAt.IsZero() {
			resent = append(resent, payload.ResourceStatusHash{ResourceID: delivery.Resource.ID})
		}
	}
	if len(sent) > 0 {
		if err := c.d.o.Store.Sent(ctx, sent, c.delay); err != nil {
			return 0, err
		}
	}
	if failed != nil {
		return 0, failed
	}
	if len(resent) > 0 {
		// The agent may have had the version all the time, and its report was lost. It does not report again for being
		// sent the same again; it does for being asked.
		c.d.metrics.resent.Add(float64(len(resent)))
		if err := c.publishStatusResync(ctx, resent); err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

// delay is how long a delivery that was sent attempts+1 times waits for its confirmation.
func (c *consumer) delay(attempts int) time.Duration {
	return min(c.d.o.Resend<<min(attempts, 16), c.d.o.MaxResend)
}

// deliver sends one delivery, or parks it when it can never be sent.
func (c *consumer) deliver(ctx context.Context, delivery *store.Delivery) error {
	r := delivery.Resource
	action := event.Update
	switch {
	case !r.DeletedAt.IsZero():
		action = event.Delete
	case r.Version == 1:
		action = event.Create
	}
	evt, err := event.EncodeSpec(r, c.d.o.SourceID, action)
	if err != nil {
		return c.park(ctx, delivery, maestroapi.DeliveredNotEncodable, err.Error())
	}
	connection := c.d.o.Link.Connects()
	err = c.d.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.d.o.SourceID, c.name), evt)
	switch {
	case err == nil:
		c.healthy = connection
		c.d.metrics.sent.WithLabelValues(string(action)).Inc()
		delete(c.breaks, r.ID)
		return nil
	case errors.Is(err, mqttlink.ErrTooLarge):
		return c.park(ctx, delivery, maestroapi.DeliveredTooLarge, err.Error())
	case errors.Is(err, mqttlink.ErrDown) || ctx.Err() != nil:
		return err
	}
	return c.suspect(ctx, delivery, connection, err)
}

// suspect asks whether a delivery that failed is itself the reason. The broker being away, slow or restarting is not: only
// when the connection worked, and broke at this delivery, again and again, is the delivery put off so that those behind
// it go on.
func (c *consumer) suspect(ctx context.Context, delivery *store.Delivery, connection int64, err error) error {
	r := delivery.Resource
	if broken := c.d.o.Link.Ready(ctx) != nil || c.d.o.Link.Connects() != connection; broken && c.healthy == connection {
		if len(c.breaks) > sendBatch {
			clear(c.breaks)
		}
		c.breaks[r.ID]++
	}
	if c.breaks[r.ID] < poisonAttempts {
		return fmt.Errorf("send resource %s: %w", r.ID, err)
	}
	// Next time once is enough.
	c.breaks[r.ID] = poisonAttempts - 1
	return c.putAside(ctx, delivery, maestroapi.DeliveredNotDeliverable, fmt.Sprintf("the connection broke %d times at it: %v", poisonAttempts, err), c.d.o.MaxResend)
}

// park puts a delivery aside until its resource changes.
func (c *consumer) park(ctx context.Context, delivery *store.Delivery, reason, message string) error {
	return c.putAside(ctx, delivery, reason, message, 0)
}

// putAside makes room for the deliveries behind one that cannot be sent, and tells the source. It is tried again after
// the pause; without one, only when the resource changes.
func (c *consumer) putAside(ctx context.Context, delivery *store.Delivery, reason, message string, pause time.Duration) error {
	r := delivery.Resource
	status, err := event.ServerStatus(r, c.d.o.SourceID, metav1.Condition{
		Type: maestroapi.ConditionDelivered, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}, time.Now())
	if err != nil {
		return err
	}
	if err := c.d.o.Store.Park(ctx, delivery, reason+": "+message, pause, status); err != nil {
		return err
	}
	c.d.metrics.parked.Inc()
	c.log.Error("delivery parked", "resource", r.ID, "version", r.Version, "reason", reason, "message", message)
	r.Status, r.Parked = status, reason
	c.d.o.Announce([]*store.Report{{Status: status, Outcome: store.Applied, Resource: r}})
	return nil
}

// resyncStatuses asks the agent for every status that differs from the known one.
func (c *consumer) resyncStatuses(ctx context.Context) error {
	known, err := c.d.o.Store.Hashes(ctx, c.name)
	if err != nil {
		return err
	}
	hashes := make([]payload.ResourceStatusHash, 0, len(known))
	for id, hash := range known {
		hashes = append(hashes, payload.ResourceStatusHash{ResourceID: id, StatusHash: hash})
	}
	return c.publishStatusResync(ctx, hashes)
}

func (c *consumer) publishStatusResync(ctx context.Context, hashes []payload.ResourceStatusHash) error {
	for len(hashes) > 0 {
		n := min(len(hashes), hashesPerResync)
		evt, err := event.EncodeStatusResync(c.d.o.SourceID, c.name, hashes[:n])
		if err != nil {
			return err
		}
		connection := c.d.o.Link.Connects()
		if err := c.d.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.d.o.SourceID, c.name), evt); err != nil {
			return fmt.Errorf("ask for statuses: %w", err)
		}
		c.healthy = connection
		hashes = hashes[n:]
	}
	return nil
}
