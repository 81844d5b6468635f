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
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/payload"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

const (
	// sendBatch bounds the deliveries that are read at once. With the largest bundles they use 16 MB.
	sendBatch = 32
	// statusBatch bounds the statuses in one transaction.
	statusBatch = 128
	// hashesPerResync bounds the hashes in one status resync, well below the limit of a message.
	hashesPerResync = 1500
	// firstRetry is the first pause after sending failed. Its bound is Options.SafetyPoll.
	firstRetry = 100 * time.Millisecond
	// maxBrokenConnections is the number of broken connections after which a delivery counts as their cause.
	maxBrokenConnections = 6
	// pingTimeout bounds the wait for the broker's response after sending a delivery failed.
	pingTimeout = 5 * time.Second
)

// consumer runs the two loops of one consumer.
type consumer struct {
	name       string
	dispatcher *Dispatcher
	log        *slog.Logger

	cancel context.CancelFunc
	group  sync.WaitGroup
	wakeup chan struct{}
	inbox  *inbox
	// statusResyncNeeded requests a status resync before anything else is sent.
	statusResyncNeeded atomic.Bool
	// resyncing is false if the resync lane is empty, so that no confirmation frees a place in its window.
	resyncing atomic.Bool
	// breaks counts, by resource, how often sending it broke a connection that had worked before. workingConnection is the
	// number of the last connection that worked. Only the sending loop uses them.
	breaks            map[string]int
	workingConnection int64
	// acknowledged is the ID of the last acknowledged spec resync. Only the inbox loop uses it.
	acknowledged string
	// parts is the list of a spec resync that arrives in several events. Only the inbox loop uses it.
	parts parts
}

// parts are the received parts of a list of works.
type parts struct {
	id  string
	of  int64
	got map[int64]bool
	// bytes is the size of the received parts.
	bytes int64
	held  map[string]int64
	// malformed reports that a part has malformed elements.
	malformed bool
}

// newConsumer returns a consumer that queues events. The caller must start it.
func newConsumer(name string, d *Dispatcher) *consumer {
	c := &consumer{
		name: name, dispatcher: d, log: d.o.Log.With(logkey.Consumer, name),
		wakeup: make(chan struct{}, 1), inbox: newInbox(), breaks: map[string]int{},
	}
	c.statusResyncNeeded.Store(true)
	return c
}

// start starts the loops. Events must reach the consumer already: one of the loops requests statuses at once, and the agent sends each
// of them only once.
func (c *consumer) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.group.Go(func() { c.sendDeliveries(ctx) })
	c.group.Go(func() { c.processEvents(ctx) })
}

func (c *consumer) stop() {
	c.cancel()
	c.group.Wait()
}

func (c *consumer) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

func (c *consumer) requestStatuses() {
	c.statusResyncNeeded.Store(true)
	c.wake()
}

// receive queues an event of the agent. If the inbox is full it drops the event and requests all statuses, because other
// consumers share the link and must not be blocked. An event that is larger than any valid message is dropped, and not requested
// again.
func (c *consumer) receive(evt *cloudevents.Event) {
	limit, first := c.inbox.add(evt)
	if limit == "" {
		return
	}
	c.dispatcher.metrics.dropped.WithLabelValues(limit).Inc()
	if first {
		c.log.Error("events of the agent exceed a limit and are dropped", logkey.Limit, limit)
	}
	if limit != limitEvent {
		c.requestStatuses()
	}
}

// sendDeliveries sends the deliveries of the outbox until ctx ends.
func (c *consumer) sendDeliveries(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retries := backoff.New(firstRetry, c.dispatcher.o.SafetyPoll)
	for {
		pause, err := c.sendDue(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = retries.Next()
			if !errors.Is(err, mqttlink.ErrDown) {
				c.dispatcher.metrics.failures.Inc()
				c.log.WarnContext(ctx, "sending deliveries failed", logkey.Error, err, logkey.RetryIn, pause.String())
			}
		default:
			retries.Reset()
		}
		if pause == 0 {
			continue
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-c.wakeup:
		case <-timer.C:
		}
	}
}

// sendDue sends what is due once. It returns how long to wait unless there is a notification; zero means that more may be due.
func (c *consumer) sendDue(ctx context.Context) (pause time.Duration, err error) {
	if !c.dispatcher.o.Link.Connected() {
		return 0, mqttlink.ErrDown
	}
	if c.statusResyncNeeded.Swap(false) {
		if err := c.resyncStatuses(ctx); err != nil {
			c.statusResyncNeeded.Store(true)
			return 0, err
		}
	}
	// Set before the outbox is read: a status that arrives meanwhile may confirm a delivery of the window.
	c.resyncing.Store(true)
	waiting, err := c.dispatcher.o.Store.Waiting(ctx, c.name)
	if err != nil {
		return 0, err
	}
	c.resyncing.Store(waiting.Due[store.Resync]+waiting.Resyncing > 0)
	pause = c.dispatcher.o.SafetyPoll
	if !waiting.Next.IsZero() {
		pause = min(pause, time.Until(waiting.Next))
	}
	// A resync fills its window even if there is much new work, and new work never waits for a resync.
	more := false
	for lane, limit := range [...]int{store.NewWork: sendBatch, store.Resync: min(c.dispatcher.o.ResyncWindow-waiting.Resyncing, sendBatch)} {
		if waiting.Due[lane] == 0 || limit <= 0 {
			continue
		}
		sent, again, err := c.sendLane(ctx, store.Lane(lane), limit)
		if err != nil {
			return 0, err
		}
		more, pause = more || sent == limit, min(pause, again)
	}
	if more {
		return 0, nil
	}
	return max(pause, 10*time.Millisecond), nil
}

// sendLane sends the due deliveries of a lane in order. It returns how many were due, and when the first of them is due again if it is not
// confirmed.
func (c *consumer) sendLane(ctx context.Context, lane store.Lane, limit int) (n int, again time.Duration, err error) {
	again = c.dispatcher.o.SafetyPoll
	due, err := c.dispatcher.o.Store.Due(ctx, c.name, lane, limit)
	if err != nil || len(due) == 0 {
		return 0, again, err
	}
	sent := make([]*store.Delivery, 0, len(due))
	var resent []payload.ResourceStatusHash
	var failed error
	for _, delivery := range due {
		if lane != store.NewWork {
			delivery.Resource.TraceParent = "" // the request ended long ago
		}
		if failed = c.deliver(ctx, delivery); failed != nil {
			break
		}
		sent = append(sent, delivery)
		if delivery.Attempts > 0 && delivery.Resource.DeletedAt.IsZero() {
			resent = append(resent, payload.ResourceStatusHash{ResourceID: delivery.Resource.ID})
		}
	}
	if len(sent) > 0 {
		err := c.dispatcher.o.Store.Sent(ctx, sent, func(attempts int) time.Duration {
			delay := c.delay(attempts)
			again = min(again, delay)
			return delay
		})
		if err != nil {
			return 0, 0, err
		}
	}
	if failed != nil {
		return 0, 0, failed
	}
	if len(resent) > 0 {
		// The agent may have applied the version and its report was lost. It does not repeat the report when it receives the
		// same version, but it does on request.
		c.dispatcher.metrics.resent.Add(float64(len(resent)))
		if err := c.publishStatusResync(ctx, resent); err != nil {
			return 0, 0, err
		}
	}
	return len(due), again, nil
}

// delay returns how long a delivery that was sent attempts+1 times waits for its confirmation.
func (c *consumer) delay(attempts int) time.Duration {
	return backoff.After(attempts+1, c.dispatcher.o.Resend, c.dispatcher.o.MaxResend)
}

// deliver sends one delivery, or parks it if it can never be sent.
func (c *consumer) deliver(ctx context.Context, delivery *store.Delivery) (err error) {
	r := delivery.Resource
	if r.TraceParent != "" {
		_, span := c.dispatcher.o.Traces.Start(tracing.Continue(ctx, r.TraceParent), "send", trace.WithAttributes(tracing.BundleID.String(r.ID), tracing.Consumer.String(c.name),
			tracing.Version.Int64(r.Version)))
		defer func() { tracing.End(span, err) }()
	}
	action := event.Update
	switch {
	case !r.DeletedAt.IsZero():
		action = event.Delete
	case r.Version == 1:
		action = event.Create
	}
	evt, err := event.EncodeSpec(r, c.dispatcher.o.SourceID, action)
	if err != nil {
		return c.park(ctx, delivery, maestroapi.DeliveredNotEncodable, err.Error())
	}
	connection := c.dispatcher.o.Link.Connects()
	err = c.dispatcher.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.dispatcher.o.SourceID, c.name), evt)
	switch {
	case err == nil:
		c.workingConnection = connection
		c.dispatcher.metrics.sent.WithLabelValues(string(action)).Inc()
		delete(c.breaks, r.ID)
		return nil
	case errors.Is(err, mqttlink.ErrBrokerLimit):
		return c.postpone(ctx, delivery, maestroapi.DeliveredTooLarge, err.Error(), c.dispatcher.o.MaxResend)
	case errors.Is(err, mqttlink.ErrTooLarge):
		return c.park(ctx, delivery, maestroapi.DeliveredTooLarge, err.Error())
	case errors.Is(err, mqttlink.ErrDown) || ctx.Err() != nil:
		return err
	}
	return c.handleFailure(ctx, delivery, connection, err)
}

// handleFailure decides whether a delivery that failed is itself the cause. An unreachable, slow or restarting broker is not a
// failure of the delivery. If sending it breaks a working connection repeatedly, handleFailure postpones the delivery, so that
// those behind it are sent.
func (c *consumer) handleFailure(ctx context.Context, delivery *store.Delivery, connection int64, err error) error {
	r := delivery.Resource
	if c.connectionBroke(ctx, connection) && c.workingConnection == connection {
		if len(c.breaks) > sendBatch {
			clear(c.breaks)
		}
		c.breaks[r.ID]++
	}
	if c.breaks[r.ID] < maxBrokenConnections {
		return fmt.Errorf("sending resource %s: %w", r.ID, err)
	}
	// Next time, one broken connection is enough.
	c.breaks[r.ID] = maxBrokenConnections - 1
	return c.postpone(ctx, delivery, maestroapi.DeliveredNotDeliverable, fmt.Sprintf("sending it broke the connection %d times: %v", maxBrokenConnections, err), c.dispatcher.o.MaxResend)
}

// connectionBroke reports whether a connection has broken. One whose broker does not respond in time has not.
func (c *consumer) connectionBroke(ctx context.Context, connection int64) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := c.dispatcher.o.Link.Ready(ctx)
	return err != nil && !errors.Is(err, context.DeadlineExceeded) || c.dispatcher.o.Link.Connects() != connection
}

// park removes a delivery from the outbox until its resource changes.
func (c *consumer) park(ctx context.Context, delivery *store.Delivery, reason, message string) error {
	return c.postpone(ctx, delivery, reason, message, 0)
}

// postpone removes a delivery that cannot be sent from its place in the outbox and reports that to the source. It is sent
// again after the pause; if that is 0, only after the resource has changed.
func (c *consumer) postpone(ctx context.Context, delivery *store.Delivery, reason, message string, pause time.Duration) error {
	r := delivery.Resource
	status, err := event.ServerStatus(r, c.dispatcher.o.SourceID, metav1.Condition{
		Type: maestroapi.ConditionDelivered, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	}, time.Now())
	if err != nil {
		return err
	}
	if err := c.dispatcher.o.Store.Park(ctx, delivery, reason+": "+message, pause, status); err != nil {
		return err
	}
	c.dispatcher.metrics.parked.Inc()
	c.log.ErrorContext(ctx, "delivery parked", logkey.BundleID, r.ID, logkey.Version, r.Version, logkey.Reason, reason, logkey.Message, message)
	r.Status, r.Parked = status, reason
	c.dispatcher.o.Announce([]*store.Report{{Status: status, Outcome: store.Applied, Resource: r}})
	return nil
}

// resyncStatuses requests from the agent every status that differs from the stored one.
func (c *consumer) resyncStatuses(ctx context.Context) error {
	known, err := c.dispatcher.o.Store.Hashes(ctx, c.name)
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
		evt, err := event.EncodeStatusResync(c.dispatcher.o.SourceID, c.name, hashes[:n])
		if err != nil {
			return err
		}
		connection := c.dispatcher.o.Link.Connects()
		if err := c.dispatcher.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.dispatcher.o.SourceID, c.name), evt); err != nil {
			return fmt.Errorf("requesting statuses: %w", err)
		}
		c.workingConnection = connection
		hashes = hashes[n:]
	}
	return nil
}
