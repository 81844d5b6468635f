package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

// outbox is the outbox of one consumer. Its resources have short names.
type outbox struct {
	*Store
	t *testing.T
}

const outboxConsumer = "mgmt-1"

func newOutbox(t *testing.T) *outbox {
	t.Helper()
	o := &outbox{open(t), t}
	must.Get(o.CreateConsumer(t.Context(), outboxConsumer, nil))(t)
	return o
}

// create creates resources, whose deliveries are new work.
func (o *outbox) create(names ...string) {
	o.t.Helper()
	for _, name := range names {
		must.Get(o.Create(o.t.Context(), &resource.Resource{ID: name, Source: "cluster-service", Consumer: outboxConsumer, Spec: json.RawMessage(`{}`)}))(o.t)
	}
}

// confirm stores a status of each resource.
func (o *outbox) confirm(names ...string) {
	o.t.Helper()
	var statuses []*resource.Status
	for _, name := range names {
		statuses = append(statuses, &resource.Status{ResourceID: name, Consumer: outboxConsumer, Version: 1, Agent: "agent", Sequence: fmt.Sprint(time.Now().UnixNano()), Hash: name, Body: []byte(`{}`)})
	}
	must.Get(o.ApplyStatuses(o.t.Context(), outboxConsumer, statuses))(o.t)
}

// send records the first due deliveries of a lane as sent, with a delay until they are due again.
func (o *outbox) send(lane Lane, limit int, delay time.Duration) {
	o.t.Helper()
	due, err := o.Due(o.t.Context(), outboxConsumer, lane, limit)
	if err == nil {
		err = o.Sent(o.t.Context(), due, func(int) time.Duration { return delay })
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// resync compares with an agent that has no works.
func (o *outbox) resync() {
	o.t.Helper()
	must.Get(o.CompareHeld(o.t.Context(), outboxConsumer, nil, true))(o.t)
}

// wantDue checks the due deliveries of a lane, in order.
func (o *outbox) wantDue(lane Lane, want ...string) {
	o.t.Helper()
	due := must.Get(o.Due(o.t.Context(), outboxConsumer, lane, 100))(o.t)
	var got []string
	for _, d := range due {
		got = append(got, d.Resource.ID)
	}
	if !slices.Equal(got, want) {
		o.t.Errorf("due deliveries of lane %d: %q, want %q", lane, got, want)
	}
}

// TestNewWorkIsNotPartOfResync publishes work that is sent before the agent requests a resync. The resync must not delay it.
func TestNewWorkIsNotPartOfResync(t *testing.T) {
	o := newOutbox(t)
	o.create("a", "b", "y")
	o.confirm("a", "b", "y")
	o.create("new", "unsent")
	o.send(NewWork, 1, time.Hour)
	o.resync()
	o.wantDue(NewWork, "new", "unsent")
	o.wantDue(Resync, "a", "b", "y")
}

// TestNewWorkThatIsBeingSentIsSentAgain lets a resync begin after a delivery was published and before that is recorded. The agent may
// have subscribed in between, so the delivery must stay due.
func TestNewWorkThatIsBeingSentIsSentAgain(t *testing.T) {
	o := newOutbox(t)
	o.create("new")
	due := must.Get(o.Due(t.Context(), outboxConsumer, NewWork, 1))(t)
	o.resync()
	must.Do(t, o.Sent(t.Context(), due, func(int) time.Duration { return time.Hour }))
	o.wantDue(NewWork, "new")
}

// TestResyncBoundsOldNewWork checks that new work which was sent repeatedly becomes part of a resync, before resources that have not
// changed, and that what the resync has sent comes last in the next one.
func TestResyncBoundsOldNewWork(t *testing.T) {
	o := newOutbox(t)
	o.create("a", "b")
	o.confirm("a", "b")
	o.create("old")
	o.send(NewWork, 1, 0)
	o.send(NewWork, 1, time.Hour)
	o.create("new")
	o.resync()
	o.wantDue(NewWork, "new")
	o.wantDue(Resync, "old", "a", "b")
	o.send(Resync, 1, time.Hour)
	o.resync()
	o.wantDue(Resync, "a", "b", "old")
}

// TestUnconfirmedDeliveriesDoNotStopResync sends deliveries that the agent does not confirm, for example deletions that take long. When
// they are due again, the rest of the resync must come first: else they would fill the window again.
func TestUnconfirmedDeliveriesDoNotStopResync(t *testing.T) {
	o := newOutbox(t)
	o.create("a", "b", "c")
	o.confirm("a", "b", "c")
	o.resync()
	o.send(Resync, 2, 0)
	o.wantDue(Resync, "c", "a", "b")
}

// TestDiffering checks which statuses a resync of a source sends, read in pages of two.
func TestDiffering(t *testing.T) {
	o := newOutbox(t)
	o.create("a", "b", "c", "d", "e", "silent")
	o.confirm("a", "b", "c", "d", "e")
	for name, tc := range map[string]struct {
		source string
		listed map[string]string
		want   []string
	}{
		"no list":          {"cluster-service", nil, []string{"a", "b", "c", "d", "e"}},
		"another source":   {"other", nil, nil},
		"equal":            {"cluster-service", map[string]string{"a": "a", "b": "b"}, nil},
		"unequal, unknown": {"cluster-service", map[string]string{"a": "a", "b": "old", "d": "", "silent": "", "unknown": "x", "z": ""}, []string{"b", "d", "silent", "unknown", "z"}},
		"of another":       {"other", map[string]string{"a": "a"}, []string{"a"}},
	} {
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, err := o.Differing(t.Context(), tc.source, tc.listed, after, 2)
			if err != nil || len(page) > 2 {
				t.Fatal(page, err)
			}
			if got = append(got, page...); len(page) == 0 {
				break
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
