package delivery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// processEvents processes the events of the agent in order. Statuses that wait together share a transaction.
func (c *consumer) processEvents(ctx context.Context) {
	var held *cloudevents.Event
	for {
		evt := held
		held = nil
		if evt == nil {
			select {
			case <-ctx.Done():
				return
			case evt = <-c.inbox.events:
			}
		}
		size := sizeOf(evt)
		if event.IsHeartbeat(evt) {
			c.storeHeartbeat(ctx)
			c.inbox.done(size)
			continue
		}
		action, err := event.ActionOf(evt)
		switch {
		case err != nil:
			c.dispatcher.HandleInvalid(c.name, err)
		case action == event.SpecResync:
			c.resyncSpecs(ctx, evt)
		case action == event.StatusUpdate:
			var statuses []*resource.Status
			statuses, size, held = c.collectStatuses(evt)
			c.storeStatuses(ctx, statuses)
		default:
			c.log.WarnContext(ctx, "unexpected type of agent event", logkey.Type, evt.Type())
		}
		c.inbox.done(size)
	}
}

// storeHeartbeat stores a heartbeat of the agent. It does not retry: the next heartbeat follows soon.
func (c *consumer) storeHeartbeat(ctx context.Context) {
	if err := c.dispatcher.o.Store.RecordHeartbeat(ctx, c.name); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "storing a heartbeat failed", logkey.Error, err)
	}
}

// collectStatuses returns the status of evt and the statuses that wait behind it, with the size of their events, up to the first
// event of another type, which it returns too.
func (c *consumer) collectStatuses(evt *cloudevents.Event) (statuses []*resource.Status, size int64, next *cloudevents.Event) {
	for {
		size += sizeOf(evt)
		status, err := event.DecodeStatus(evt)
		switch {
		case err != nil:
			c.dispatcher.HandleInvalid(c.name, err)
		case status.Consumer != c.name:
			c.log.Error("status for another consumer dropped", logkey.Name, status.Consumer)
		default:
			statuses = append(statuses, status)
		}
		if len(statuses) >= statusBatch {
			return statuses, size, nil
		}
		select {
		case evt = <-c.inbox.events:
		default:
			return statuses, size, nil
		}
		if action, err := event.ActionOf(evt); err != nil || action != event.StatusUpdate {
			return statuses, size, evt
		}
	}
}

// storeStatuses stores statuses and announces those that changed something. It retries while the database is unavailable.
func (c *consumer) storeStatuses(ctx context.Context, statuses []*resource.Status) {
	if len(statuses) == 0 {
		return
	}
	var reports []*store.Report
	ok := c.retryWhileUnavailable(ctx, "storing statuses", func() (err error) {
		reports, err = c.dispatcher.o.Store.ApplyStatuses(ctx, c.name, statuses)
		return err
	})
	if !ok {
		return
	}
	var changed []*store.Report
	lost := false
	for _, report := range reports {
		lost = lost || report.Outcome == store.Lost
		c.dispatcher.metrics.reports.WithLabelValues(report.Outcome.String()).Inc()
		switch report.Outcome {
		case store.Applied, store.Removed:
			changed = append(changed, report)
		case store.Unwanted:
			c.repeatDeletion(ctx, report.Resource)
		case store.Unknown:
			c.dispatcher.metrics.unknown.Inc()
			c.log.WarnContext(ctx, "agent reports an unknown work; ignoring it", logkey.BundleID, report.Status.ResourceID)
		}
	}
	if len(changed) > 0 {
		c.dispatcher.o.Announce(changed)
	}
	// Confirmations free places in the resync window, and a lost resource is delivered again.
	if lost || c.resyncing.Load() {
		c.wake()
	}
}

// resyncSpecs compares the works that an agent lists with the stored resources, and orders what the agent lacks. An agent
// that lists none has lost its state.
func (c *consumer) resyncSpecs(ctx context.Context, evt *cloudevents.Event) {
	request, err := event.DecodeSpecResync(evt)
	if err == nil && request.Consumer != c.name {
		err = errors.New("the event and its topic name different consumers")
	}
	if err != nil {
		c.dispatcher.HandleInvalid(c.name, err)
		return
	}
	if err := request.Ignored.Err(); err != nil {
		c.dispatcher.metrics.invalid.Add(float64(request.Ignored.Count))
		c.log.ErrorContext(ctx, "elements of the agent's list of works are malformed; the others apply", logkey.Count, request.Ignored.Count, logkey.Error, err)
	}
	held, malformed, err := c.joinParts(request, sizeOf(evt))
	if err != nil {
		c.dispatcher.HandleInvalid(c.name, err)
		return
	}
	if held == nil {
		return
	}
	if request.ID != "" && request.ID == c.acknowledged {
		// The acknowledgement was late or lost. The agent has been subscribed since the first request, so that it receives all
		// deliveries since then: another comparison would only send those that it has not confirmed yet again.
		c.acknowledgeResync(ctx, evt, request.ID)
		return
	}
	c.dispatcher.metrics.resyncs.Inc()
	var diff *store.Difference
	ok := c.retryWhileUnavailable(ctx, "comparing the works of the agent", func() (err error) {
		diff, err = c.dispatcher.o.Store.CompareHeld(ctx, c.name, held, len(held) == 0 && !malformed)
		return err
	})
	if !ok {
		return
	}
	c.log.InfoContext(ctx, "agent resynced", logkey.Held, len(held), logkey.Ordered, diff.Ordered, logkey.Confirmed, diff.Confirmed,
		logkey.Unwanted, len(diff.Unwanted), logkey.Unknown, len(diff.Unknown))
	for _, r := range diff.Unwanted {
		c.repeatDeletion(ctx, r)
	}
	if n := len(diff.Unknown); n > 0 {
		c.dispatcher.metrics.unknown.Add(float64(n))
		c.log.WarnContext(ctx, "agent has unknown works; ignoring them", logkey.Count, n, logkey.BundleID, diff.Unknown[0])
	}
	c.acknowledgeResync(ctx, evt, request.ID)
	if len(held) > 0 {
		c.requestStatuses()
	}
	c.wake()
}

// acknowledgeResync acknowledges the spec resync with an ID, if the agent needs that. If it fails, the agent requests the resync again.
func (c *consumer) acknowledgeResync(ctx context.Context, request *cloudevents.Event, id string) {
	response := event.AcknowledgeResync(request, c.dispatcher.o.SourceID)
	if response == nil {
		return
	}
	if err := c.dispatcher.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.dispatcher.o.SourceID, c.name), response); err != nil {
		c.log.WarnContext(ctx, "acknowledging the resync of the agent failed", logkey.Error, err)
		return
	}
	c.acknowledged = id
}

// joinParts returns the whole list once all its parts have arrived, and nil before. size is that of the event. malformed reports that the agent has
// works which the list does not have, because their elements are malformed. It forgets an incomplete list when the next one begins, and one that is
// larger than inboxBytes.
func (c *consumer) joinParts(r *event.SpecResyncRequest, size int64) (held map[string]int64, malformed bool, err error) {
	if r.Parts == 1 {
		return r.Held, r.Ignored.Count > 0, nil
	}
	if c.parts.id != r.ID || c.parts.of != r.Parts {
		c.parts = parts{id: r.ID, of: r.Parts, got: map[int64]bool{}, held: map[string]int64{}}
	}
	if c.parts.bytes += size; c.parts.bytes > inboxBytes {
		c.parts = parts{}
		return nil, false, fmt.Errorf("the parts of the spec resync %q have more than %d bytes", r.ID, inboxBytes)
	}
	c.parts.got[r.Part] = true
	c.parts.malformed = c.parts.malformed || r.Ignored.Count > 0
	maps.Copy(c.parts.held, r.Held)
	if int64(len(c.parts.got)) < r.Parts {
		return nil, false, nil
	}
	whole := c.parts
	c.parts = parts{}
	return whole.held, whole.malformed, nil
}

// repeatDeletion tells the agent to delete a work whose deletion it had confirmed. If that fails, the next report repeats it.
func (c *consumer) repeatDeletion(ctx context.Context, r *resource.Resource) {
	evt, err := event.EncodeSpec(r, c.dispatcher.o.SourceID, event.Delete)
	if err == nil {
		err = c.dispatcher.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.dispatcher.o.SourceID, c.name), evt)
	}
	if err != nil {
		c.log.WarnContext(ctx, "repeating a deletion failed", logkey.BundleID, r.ID, logkey.Error, err)
	}
}

// maxAttempts is the number of attempts of an event that fails although the database is available.
const maxAttempts = 5

// retryWhileUnavailable calls do until it succeeds or ctx ends, and reports whether it succeeded. An event that fails for
// another reason than the database is logged and dropped after maxAttempts, because it would block all events behind it.
func (c *consumer) retryWhileUnavailable(ctx context.Context, what string, do func() error) bool {
	retries := backoff.New(50*time.Millisecond, 2*time.Second)
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		var fault *resource.Error
		if errors.As(err, &fault) || (!store.IsUnavailable(err) && attempt > maxAttempts) {
			c.dispatcher.metrics.invalid.Inc()
			c.log.ErrorContext(ctx, "agent event dropped", logkey.Step, what, logkey.Error, err)
			c.statusResyncNeeded.Store(true)
			return false
		}
		c.log.WarnContext(ctx, "agent event waits for the database", logkey.Step, what, logkey.Error, err)
		if retries.Wait(ctx) != nil {
			return false
		}
	}
}
