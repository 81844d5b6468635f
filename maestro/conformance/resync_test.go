package conformance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// The published server runs a resync in its receive loop, before all other events.
func TestPublishedFault_ResyncStarvesNewWork(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	// With a window of one, the resync is still running when the new work is published, also on a fast machine.
	r.Tune = func(c *app.Config) { c.ResyncWindow = 1 }
	s := r.StartServer()
	consumer := r.consumer(s)
	first := r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	works := make([]bundle, 300)
	for i := range works {
		works[i] = newBundle(consumer, "x")
	}
	cs.mustAll("create", works, 8)
	for _, b := range works {
		cs.untilApplied(b.ID, 1)
	}
	first.Stop()
	before := map[string]int{}
	cs.mu.Lock()
	for id := range cs.seen {
		before[id] = len(cs.seen[id])
	}
	cs.mu.Unlock()
	r.startAgent(consumer)
	agent := newBundle(consumer, "new")
	// New work is published while the resync is running.
	eventually.Soon(t, "the resync is running", func() error {
		if reportedAgain(cs, before) == 0 {
			return errors.New("no work is reported again")
		}
		return nil
	})

	cs.must("create", agent)
	cs.untilApplied(agent.ID, 1)
	if n := reportedAgain(cs, before); n >= len(works) {
		t.Errorf("new work was applied only after all %d works of the resync", n)
	}
	eventually.Soon(t, "the resync ends", func() error {
		if n := reportedAgain(cs, before); n < len(works) {
			return fmt.Errorf("%d of %d works are reported again", n, len(works))
		}
		return nil
	})

}

func reportedAgain(cs *source, before map[string]int) (n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for id, count := range before {
		if len(cs.seen[id]) > count {
			n++
		}
	}
	return n
}

// A resync sends no more than its window before the agent confirms.
func TestResyncIsBounded(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.Tune = func(c *app.Config) { c.ResyncWindow = 5; c.Resend = time.Minute }
	s := r.StartServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	var ids []string
	for range 30 {
		b := newBundle(consumer, "x")
		cs.must("create", b)
		agent.until("spec.create_request", b.ID, 1)
		agent.report(b.ID, 1, 1, "Applied")
		ids = append(ids, b.ID)
	}
	eventually.Soon(t, "all is confirmed", func() error {
		var n int
		if err := s.Server.Store().Pool().QueryRow(t.Context(), `select count(*) from deliveries`).Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d deliveries, %v", n, err)
		}
		return nil
	})

	agent.resync(nil)
	agent.until("spec.create_request", "", 35)
	// New work does not wait for the resync.
	fresh := newBundle(consumer, "x")
	cs.must("create", fresh)
	agent.until("spec.create_request", fresh.ID, 1)
	if n := len(agent.events("spec.create_request", "")); n != 36 {
		t.Errorf("%d unconfirmed events of the resync were sent, the window is 5", n-31)
	}
	confirmed := map[string]bool{}
	eventually.Soon(t, "the resync ends", func() error {
		for _, evt := range agent.events("spec.create_request", "") {
			id := evt.Extensions()["resourceid"].(string)
			if again := len(agent.events("spec.create_request", id)) > 1; again && !confirmed[id] {
				agent.report(id, 1, 2, "Applied")
				confirmed[id] = true
			}
		}
		if len(confirmed) < len(ids) {
			return fmt.Errorf("%d of %d works were sent again", len(confirmed), len(ids))
		}
		return nil
	})

}

// An agent repeats its request until it receives the acknowledgement. The server compares the works once, so that the requests which are
// late do not order deliveries again that are in transit.
func TestRepeatedResyncRequestIsAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s, consumer, agent, _ := r.withFakeAgent()
	comparisons := func() (n int) {
		// An empty list begins a new epoch.
		must.Do(t, s.Server.Store().Pool().QueryRow(t.Context(), `select agent_epoch from consumers where name = $1`, consumer).Scan(&n))
		return n
	}
	for i, id := range []string{"first", "first", "second"} {
		agent.send("agentevents", "spec.resync_request", map[string]any{"originalsource": "", maestroapi.ExtensionResyncID: id}, map[string]any{"resourceVersions": []any{}})
		agent.until("spec.resync_response", "", i+1)
		if got, want := comparisons(), 1+i/2; got != want {
			t.Errorf("after request %d, with ID %s: %d comparisons, want %d", i, id, got, want)
		}
	}
}

// A subscriber requests the statuses that it missed, and receives those of deleted resources.
func TestStatusResync(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s, consumer, agent, cs := r.withFakeAgent()
	same, changed, gone := newBundle(consumer, "x"), newBundle(consumer, "x"), newBundle(consumer, "x")
	hashes := map[string]string{}
	for _, b := range []bundle{same, changed, gone} {
		cs.must("create", b)
		agent.until("spec.create_request", b.ID, 1)
		agent.report(b.ID, 1, 1, "Applied")
		hashes[b.ID] = cs.untilApplied(b.ID, 1).Hash
	}
	cs.cancel()
	agent.report(changed.ID, 1, 2, "Changed")
	cs.must("delete", gone)
	agent.report(gone.ID, 1, 2, "Deleted")
	eventually.Soon(t, "the deletion is confirmed", func() error {
		if code := r.Call(s, "GET", "/resource-bundles/"+gone.ID, nil, nil); code != 404 {
			return fmt.Errorf("reading the bundle: status %d", code)
		}
		return nil
	})

	again := r.source(s, "cluster-service")
	again.subscribe()
	again.resync(hashes)
	again.until(changed.ID, "reported as changed", func(st statusEvent) bool { return st.is("Changed") })
	again.untilDeleted(gone.ID)
	if st := again.status(same.ID); st.Version != 0 {
		t.Errorf("received a status with an equal hash: %+v", st)
	}
	all := r.source(s, "cluster-service")
	all.subscribe()
	all.resync(nil)
	all.untilApplied(same.ID, 1)
	all.until(changed.ID, "reported as changed", func(st statusEvent) bool { return st.is("Changed") })
}

// A malformed element of a resync hides no others: the agent gets the works that it does not list, and the source the statuses that differ and the names of
// the malformed elements.
func TestMalformedElementsOfResyncs(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s, consumer, agent, cs := r.withFakeAgent()
	held, lacking := newBundle(consumer, "x"), newBundle(consumer, "x")
	for _, b := range []bundle{held, lacking} {
		cs.must("create", b)
		agent.until("spec.create_request", b.ID, 1)
		agent.report(b.ID, 1, 1, "Applied")
		cs.untilApplied(b.ID, 1)
	}
	agent.send("agentevents", "spec.resync_request", map[string]any{"originalsource": ""}, map[string]any{"resourceVersions": []any{
		7, map[string]any{"resourceID": held.ID, "resourceVersion": 1}, map[string]any{"resourceID": "a\x00"}, map[string]any{"resourceID": held.ID + "x", "resourceVersion": "1"}}})
	agent.until("spec.create_request", lacking.ID, 2)
	if n := len(agent.events("spec.create_request", held.ID)); n != 1 {
		t.Errorf("the agent received the work that it listed %d times", n)
	}

	again := r.source(s, "cluster-service")
	again.subscribe()
	evt := cloudevents.NewEvent()
	evt.SetID(uuid.NewString())
	evt.SetSource(again.name)
	evt.SetType(eventPrefix + "status.resync_request")
	evt.SetExtension("clustername", "")
	_ = evt.SetData(cloudevents.ApplicationJSON, map[string]any{"statusHashes": []any{map[string]any{"resourceID": held.ID, "statusHash": "old"}, map[string]any{"resourceID": "broken", "statusHash": 1}}})
	if _, err := again.send(&evt); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `statusHashes[1] "broken"`) {
		t.Errorf("a malformed element: %v", err)
	}
	again.untilApplied(held.ID, 1)
}
