package delivery

import (
	"context"
	"errors"
	"maps"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// listen is the loop that works through an agent's events, in order. Statuses that wait together share a transaction.
func (c *consumer) listen(ctx context.Context) {
	var held *cloudevents.Event
	for {
		evt := held
		held = nil
		if evt == nil {
			select {
			case <-ctx.Done():
				return
			case evt = <-c.inbox:
			}
		}
		action, err := event.ActionOf(evt)
		switch {
		case err != nil:
			c.d.Invalid(c.name, err)
		case action == event.SpecResync:
			c.resyncSpecs(ctx, evt)
		case action == event.StatusUpdate:
			var statuses []*resource.Status
			statuses, held = c.drain(evt)
			c.takeIn(ctx, statuses)
		default:
			c.log.Warn("agent event of a kind that agents do not send", "type", evt.Type())
		}
	}
}

// drain collects statuses that wait behind the first, up to the first event of another kind.
func (c *consumer) drain(evt *cloudevents.Event) (statuses []*resource.Status, next *cloudevents.Event) {
	for {
		status, err := event.DecodeStatus(evt)
		switch {
		case err != nil:
			c.d.Invalid(c.name, err)
		case status.Consumer != c.name:
			c.log.Error("agent reported for another consumer; dropped", "claimed", status.Consumer)
		default:
			statuses = append(statuses, status)
		}
		if len(statuses) >= statusBatch {
			return statuses, nil
		}
		select {
		case evt = <-c.inbox:
		default:
			return statuses, nil
		}
		if action, err := event.ActionOf(evt); err != nil || action != event.StatusUpdate {
			return statuses, evt
		}
	}
}

// takeIn stores statuses and tells whom they concern. It does not give up while the database is away.
func (c *consumer) takeIn(ctx context.Context, statuses []*resource.Status) {
	if len(statuses) == 0 {
		return
	}
	var reports []*store.Report
	ok := c.insist(ctx, "take in statuses", func() (err error) {
		reports, err = c.d.o.Store.ApplyStatuses(ctx, c.name, statuses)
		return err
	})
	if !ok {
		return
	}
	var changed []*store.Report
	for _, report := range reports {
		c.d.metrics.reports.WithLabelValues(report.Outcome.String()).Inc()
		switch report.Outcome {
		case store.Applied, store.Removed:
			changed = append(changed, report)
		case store.Unwanted:
			c.deleteAgain(ctx, report.Resource)
		case store.Unknown:
			c.d.metrics.unknown.Inc()
			c.log.Warn("the agent has a work this server has never had; it is left alone", "resource", report.Status.ResourceID)
		}
	}
	if len(changed) > 0 {
		c.d.o.Announce(changed)
	}
	// Confirmations make room in the resync window.
	c.wake()
}

// resyncSpecs answers an agent that lists what it holds. An agent that holds nothing has started anew.
func (c *consumer) resyncSpecs(ctx context.Context, evt *cloudevents.Event) {
	request, err := event.DecodeSpecResync(evt)
	if err == nil && request.Consumer != c.name {
		err = errors.New("the event names another consumer than its topic")
	}
	if err != nil {
		c.d.Invalid(c.name, err)
		return
	}
	held := c.collect(request)
	if held == nil {
		return
	}
	c.d.metrics.resyncs.Inc()
	var diff *store.Difference
	ok := c.insist(ctx, "compare what the agent holds", func() (err error) {
		diff, err = c.d.o.Store.Compare(ctx, c.name, held, len(held) == 0)
		return err
	})
	if !ok {
		return
	}
	c.log.Info("agent resynced", "holds", len(held), "ordered", diff.Ordered, "confirmed", diff.Confirmed,
		"unwanted", len(diff.Unwanted), "unknown", len(diff.Unknown))
	for _, r := range diff.Unwanted {
		c.deleteAgain(ctx, r)
	}
	if n := len(diff.Unknown); n > 0 {
		c.d.metrics.unknown.Add(float64(n))
		c.log.Warn("the agent has works this server has never had; they are left alone", "count", n, "first", diff.Unknown[0])
	}
	if answer := event.ResyncAnswer(evt, c.d.o.SourceID); answer != nil {
		if err := c.d.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.d.o.SourceID, c.name), answer); err != nil {
			c.log.Warn("the agent's resync could not be acknowledged; it will ask again", "error", err)
		}
	}
	if len(held) > 0 {
		c.askStatuses()
	}
	c.wake()
}

// collect joins the parts of a list. It gives the whole once it is whole, and forgets a list of which a part was lost when
// the next one begins.
func (c *consumer) collect(r *event.SpecResyncRequest) map[string]int64 {
	if r.Parts == 1 {
		return r.Held
	}
	if c.parts.id != r.ID || c.parts.of != r.Parts {
		c.parts.id, c.parts.of, c.parts.got, c.parts.held = r.ID, r.Parts, map[int64]bool{}, map[string]int64{}
	}
	c.parts.got[r.Part] = true
	maps.Copy(c.parts.held, r.Held)
	if int64(len(c.parts.got)) < r.Parts {
		return nil
	}
	whole := c.parts.held
	c.parts.id, c.parts.held, c.parts.got = "", nil, nil
	return whole
}

// deleteAgain tells the agent to delete what it had confirmed to have deleted. A failure is repaired by the next report.
func (c *consumer) deleteAgain(ctx context.Context, r *resource.Resource) {
	evt, err := event.EncodeSpec(r, c.d.o.SourceID, event.Delete)
	if err == nil {
		err = c.d.o.Link.Publish(ctx, maestroapi.SourceEventsTopic(c.d.o.SourceID, c.name), evt)
	}
	if err != nil {
		c.log.Warn("could not delete an unwanted work", "resource", r.ID, "error", err)
	}
}

// insist repeats what fails for the database's sake until it succeeds or the loop ends. What fails for another reason
// is dropped with a loud word, for it would fail for ever and hold up everything behind it.
func (c *consumer) insist(ctx context.Context, what string, do func() error) bool {
	pause := 50 * time.Millisecond
	for try := 0; ; try++ {
		err := do()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		var fault *resource.Error
		if errors.As(err, &fault) || (!store.IsUnavailable(err) && try >= 5) {
			c.d.metrics.invalid.Inc()
			c.log.Error("agent event dropped", "doing", what, "error", err)
			c.wantStatuses.Store(true)
			return false
		}
		c.log.Warn("agent event waits for the database", "doing", what, "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		pause = min(pause*2, 2*time.Second)
	}
}
