package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/server"
)

var errNotYet = errors.New("not yet")

// The published server: "on the gRPC path, resource insert, event insert and NOTIFY are separate statements; a crash
// between loses the event".
func TestPublishedFault_ResourceStoredButNeverDelivered(t *testing.T) {
	r := newRegion(t)
	first := r.startServer()
	consumer := r.consumer(first)
	cs := r.source(first, "cluster-service")
	// With the broker away nothing can be delivered; then the server dies.
	address := r.brokerAt
	_ = r.broker.Close()
	var works []bundle
	for range 20 {
		b := newBundle(consumer, "x")
		cs.must("create", b)
		works = append(works, b)
	}
	first.stop()
	r.startBroker(address)

	second := r.startServer()
	r.startAgent(consumer)
	cs = r.source(second, "cluster-service")
	cs.subscribe()
	cs.resync(nil)
	for _, b := range works {
		cs.untilApplied(b.ID, 1)
	}
}

// The published server: "a lost NOTIFY is only repaired by the 10-hour sync".
func TestPublishedFault_LostNotificationWaitsForHours(t *testing.T) {
	r := newRegion(t)
	r.tune = func(c *server.Config) { c.SafetyPoll = 200 * time.Millisecond }
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	b := newBundle(consumer, "x")
	// Behind the server's back: nobody is woken.
	r.insert(s, b)
	agent.until("spec.create_request", b.ID, 1)
}

// The published server: an oversized message makes the broker cut the connection, is queued again and blocks everybody.
func TestPublishedFault_PoisonMessageBlocksEverybody(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	poison := newBundle(consumer, strings.Repeat("x", 600<<10))
	r.insert(s, poison)
	healthy := newBundle(consumer, "x")
	cs.must("create", healthy)
	agent.until("spec.create_request", healthy.ID, 1)
	st := cs.until(poison.ID, "reported as not delivered", func(st statusEvent) bool {
		return meta.IsStatusConditionFalse(st.Conditions, "Delivered")
	})
	if c := meta.FindStatusCondition(st.Conditions, "Delivered"); c.Reason != "TooLarge" {
		t.Errorf("reason %s", c.Reason)
	}
	if n := len(agent.events("spec.create_request", poison.ID)); n != 0 {
		t.Errorf("the poison was sent %d times", n)
	}
	// A version that fits ends it.
	cs.must("update", poison.with("small"))
	agent.until("spec.update_request", poison.ID, 1)
}

// A message that the broker cuts the connection at, for a reason of its own, is put off after a few tries.
func TestPublishedFault_PoisonThatOnlyTheBrokerKnows(t *testing.T) {
	r := newRegion(t)
	r.tune = func(c *server.Config) { c.MaxResend = 2 * time.Second; c.Resend = time.Second }
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	r.broker.Poison("arsenic")
	poison, healthy := newBundle(consumer, "arsenic"), newBundle(consumer, "x")
	cs.must("create", poison)
	cs.must("create", healthy)
	st := cs.until(poison.ID, "reported as not delivered", func(st statusEvent) bool {
		return meta.IsStatusConditionFalse(st.Conditions, "Delivered")
	})
	if c := meta.FindStatusCondition(st.Conditions, "Delivered"); c.Reason != "NotDeliverable" {
		t.Errorf("reason %s", c.Reason)
	}
	agent.until("spec.create_request", healthy.ID, 1)
	// Once the broker takes it, it is delivered.
	r.broker.Poison("")
	agent.until("spec.create_request", poison.ID, 1)
}

// insert stores a resource and its delivery without the checks and the waking of a publish.
func (r *region) insert(s *maestroServer, b bundle) {
	r.t.Helper()
	spec := fmt.Sprintf(`{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","namespace":"default"},"data":{"key":"%s"}}]}`,
		b.configMapName(), b.Manifests[0].(map[string]any)["data"].(map[string]any)["key"])
	_, err := s.server.Store().Pool().Exec(r.t.Context(), `
		with r as (insert into resources (id, source, consumer, version, spec, content_hash) values ($1, 'cluster-service', $2, 1, $3, '') returning id, consumer)
		insert into deliveries (resource_id, consumer) select id, consumer from r`, b.ID, b.Consumer, []byte(spec))
	if err != nil {
		r.t.Fatal(err)
	}
}

// The published server: a delete whose answer is lost stays soft-deleted for ever.
func TestPublishedFault_UnconfirmedDeleteIsNeverSentAgain(t *testing.T) {
	r := newRegion(t)
	r.tune = func(c *server.Config) { c.Resend = 100 * time.Millisecond }
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.until("spec.create_request", b.ID, 1)
	cs.must("delete", b)
	agent.until("spec.delete_request", b.ID, 3)
	if code := r.call(s, "GET", "/resource-bundles/"+b.ID, nil, nil); code != 200 {
		t.Errorf("the resource went before the agent confirmed: %d", code)
	}
	agent.report(b.ID, 1, 1, "Deleted")
	cs.untilDeleted(b.ID)
}

// The published server never sends an unacknowledged spec again before the agent reconnects.
func TestPublishedFault_UnconfirmedSpecIsNeverSentAgain(t *testing.T) {
	r := newRegion(t)
	r.tune = func(c *server.Config) { c.Resend = 100 * time.Millisecond }
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.until("spec.create_request", b.ID, 3)
	// And it asks for the status, in case only that was lost.
	agent.until("status.resync_request", "", 2)
	agent.report(b.ID, 1, 1, "Applied")
	eventually(t, 10*time.Second, "the delivery is confirmed", func() error {
		var n int
		if err := s.server.Store().Pool().QueryRow(t.Context(), `select count(*) from deliveries`).Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d deliveries, %v", n, err)
		}
		return nil
	})
}

// The published server drops the statuses of an agent whose clock went back.
func TestPublishedFault_AgentClockGoingBackSilencesIt(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.report(b.ID, 1, 1_000_000, "Applied")
	cs.untilApplied(b.ID, 1)
	// Out of order within one run of the agent: dropped.
	agent.report(b.ID, 1, 999_999, "Stale")
	// A new run, whose clock is behind: taken in.
	agent.resync(nil)
	agent.report(b.ID, 1, 5, "AfterRestart")
	cs.until(b.ID, "reported after the restart", func(st statusEvent) bool { return st.is("AfterRestart") })
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, st := range cs.seen[b.ID] {
		if st.is("Stale") {
			t.Error("an older report replaced a newer one")
		}
	}
}

// The published server accepts whatever version a Deleted report names.
func TestDeletionIsConfirmedForItsVersionOnly(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.must("update", b.with("y"))
	// Nobody has asked for a deletion: the resource is delivered again.
	agent.until("spec.update_request", b.ID, 1)
	agent.report(b.ID, 2, 1, "Applied")
	cs.untilApplied(b.ID, 2)
	agent.report(b.ID, 2, 2, "Deleted")
	agent.until("spec.update_request", b.ID, 2)
	cs.must("delete", b)
	agent.until("spec.delete_request", b.ID, 1)
	agent.report(b.ID, 1, 3, "Deleted")
	agent.report(b.ID, 2, 4, "StillHere")
	cs.until(b.ID, "still there", func(st statusEvent) bool { return st.is("StillHere") })
	agent.report(b.ID, 2, 5, "Deleted")
	cs.untilDeleted(b.ID)

	// A late report does not bring it back, and the agent is told once more to delete.
	before := len(agent.events("spec.delete_request", b.ID))
	agent.report(b.ID, 2, 6, "Applied")
	agent.until("spec.delete_request", b.ID, before+1)
	if code := r.call(s, "GET", "/resource-bundles/"+b.ID, nil, nil); code != 404 {
		t.Errorf("a late report brought the resource back: %d", code)
	}
	// The id may be used again; its versions go on.
	if version := cs.must("create", b); version != 3 {
		t.Errorf("the new life begins at version %d, wanted 3", version)
	}
}

// The published server deletes whatever an agent holds and it does not know, as after its database was restored.
func TestPublishedFault_UnknownWorksAreDeleted(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.must("create", newBundle(consumer, "x"))
	stranger := uuid.NewString()
	agent.resync(map[string]int64{stranger: 4})
	agent.report(stranger, 4, 1, "Applied")
	sentinel := newBundle(consumer, "x")
	cs.must("create", sentinel)
	agent.until("spec.create_request", sentinel.ID, 1)
	if n := len(agent.events("spec.delete_request", stranger)); n > 0 {
		t.Errorf("a work nobody has asked to delete was deleted")
	}
}

// The published agent brings a deleted work back when an older event arrives late.
func TestPublishedFault_LateEventResurrectsWork(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.untilApplied(b.ID, 1)
	cs.must("delete", b)
	cs.untilDeleted(b.ID)

	late := r.serverWire(consumer)
	late.send("sourceevents", "spec.create_request", map[string]any{"resourceid": b.ID, "resourceversion": 1},
		map[string]any{"manifests": b.Manifests, "manifestConfigs": b.Configs})
	sentinel := newBundle(consumer, "x")
	cs.must("create", sentinel)
	cs.untilApplied(sentinel.ID, 1)
	if _, err := r.configMap(b.configMapName()); !apierrors.IsNotFound(err) {
		t.Errorf("the deleted work is back: %v", err)
	}
}

// The published agent hangs when a work is deleted before its finalizer was added.
func TestPublishedFault_DeleteBeforeFinalizerHangs(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	var works []bundle
	for range 40 {
		b := newBundle(consumer, "x")
		cs.must("create", b)
		cs.must("delete", b)
		works = append(works, b)
	}
	for _, b := range works {
		cs.untilDeleted(b.ID)
		r.untilGone(b.configMapName())
	}
	if left, err := r.dynamic().Resource(configMaps).Namespace("default").List(t.Context(), metav1.ListOptions{}); err == nil {
		for _, item := range left.Items {
			for _, b := range works {
				if item.GetName() == b.configMapName() {
					t.Errorf("ConfigMap %s was left", item.GetName())
				}
			}
		}
	}
}

// The published server's broadcaster waits for its slowest subscriber.
func TestPublishedFault_SlowSubscriberStallsOthers(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	// It never reads: neither its queue nor flow control may touch anybody else.
	slow := r.source(s, "cluster-service")
	stream, err := slow.client.Subscribe(t.Context(), &pbv1.SubscriptionRequest{Source: "cluster-service"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	var works []bundle
	for range 60 {
		b := newBundle(consumer, strings.Repeat("x", 40<<10))
		cs.must("create", b)
		works = append(works, b)
	}
	for round := 1; round <= 3; round++ {
		for _, b := range works {
			agent.report(b.ID, 1, round, fmt.Sprintf("Round%d", round))
		}
	}
	for _, b := range works {
		cs.until(b.ID, "reported thrice", func(st statusEvent) bool { return st.is("Round3") })
	}
}

// The published server runs a resync inside its receive loop, ahead of everything else.
func TestPublishedFault_ResyncStarvesNewWork(t *testing.T) {
	r := newRegion(t)
	// One at a time: however fast the machine is, the resync is still under way when the new work is published.
	r.tune = func(c *server.Config) { c.ResyncWindow = 1 }
	s := r.startServer()
	consumer := r.consumer(s)
	first := r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	works := make([]bundle, 300)
	for i := range works {
		works[i] = newBundle(consumer, "x")
	}
	inParallel(8, works, func(b bundle) { cs.must("create", b) })
	for _, b := range works {
		cs.untilApplied(b.ID, 1)
	}
	first.stop()
	before := map[string]int{}
	cs.mu.Lock()
	for id := range cs.seen {
		before[id] = len(cs.seen[id])
	}
	cs.mu.Unlock()
	r.startAgent(consumer)
	agent := newBundle(consumer, "new")
	// Once the resync is under way, new work comes in.
	eventually(t, 60*time.Second, "the resync is under way", func() error {
		if n := reportedAgain(cs, before); n > 0 {
			return nil
		}
		return errNotYet
	})
	cs.must("create", agent)
	cs.untilApplied(agent.ID, 1)
	if n := reportedAgain(cs, before); n >= len(works) {
		t.Errorf("new work was applied only after all %d works of the resync", n)
	}
	eventually(t, 120*time.Second, "the resync ends", func() error {
		if n := reportedAgain(cs, before); n < len(works) {
			return fmt.Errorf("%d of %d", n, len(works))
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
	r := newRegion(t)
	r.tune = func(c *server.Config) { c.ResyncWindow = 5; c.Resend = time.Minute }
	s := r.startServer()
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
	eventually(t, 10*time.Second, "all is confirmed", func() error {
		var n int
		if err := s.server.Store().Pool().QueryRow(t.Context(), `select count(*) from deliveries`).Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d deliveries, %v", n, err)
		}
		return nil
	})
	agent.resync(nil)
	agent.until("spec.create_request", "", 35)
	// New work passes the waiting resync by.
	fresh := newBundle(consumer, "x")
	cs.must("create", fresh)
	agent.until("spec.create_request", fresh.ID, 1)
	if n := len(agent.events("spec.create_request", "")); n != 36 {
		t.Errorf("%d events of the resync were sent unconfirmed, the window is 5", n-31)
	}
	confirmed := map[string]bool{}
	eventually(t, 30*time.Second, "the resync ends", func() error {
		for _, evt := range agent.events("spec.create_request", "") {
			id := evt.Extensions()["resourceid"].(string)
			if again := len(agent.events("spec.create_request", id)) > 1; again && !confirmed[id] {
				agent.report(id, 1, 2, "Applied")
				confirmed[id] = true
			}
		}
		if len(confirmed) < len(ids) {
			return fmt.Errorf("%d of %d", len(confirmed), len(ids))
		}
		return nil
	})
}

// A subscriber that was away asks for what it missed, and hears of what is gone.
func TestStatusResync(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
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
	eventually(t, 10*time.Second, "the deletion is confirmed", func() error {
		if code := r.call(s, "GET", "/resource-bundles/"+gone.ID, nil, nil); code != 404 {
			return errNotYet
		}
		return nil
	})

	again := r.source(s, "cluster-service")
	again.subscribe()
	again.resync(hashes)
	again.until(changed.ID, "told of the change", func(st statusEvent) bool { return st.is("Changed") })
	again.untilDeleted(gone.ID)
	if st := again.status(same.ID); st.Version != 0 {
		t.Errorf("told of what is known: %+v", st)
	}
	all := r.source(s, "cluster-service")
	all.subscribe()
	all.resync(nil)
	all.untilApplied(same.ID, 1)
	all.until(changed.ID, "told of the change", func(st statusEvent) bool { return st.is("Changed") })
}

// Consumers do not wait for one another: one whose agent never answers delays nobody.
func TestConsumersAreIndependent(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	silent, lively := r.consumer(s), r.consumer(s)
	agent := r.agentWire(lively)
	cs := r.source(s, "cluster-service")
	works := make([]bundle, 200)
	for i := range works {
		works[i] = newBundle(silent, "x")
	}
	inParallel(8, works, func(b bundle) { cs.must("create", b) })
	b := newBundle(lively, "x")
	cs.must("create", b)
	agent.until("spec.create_request", b.ID, 1)
}

// Within a consumer, new work is sent in the order in which it was accepted.
func TestDeliveryIsOrdered(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	var want []string
	for range 200 {
		b := newBundle(consumer, "x")
		cs.must("create", b)
		want = append(want, b.ID)
	}
	var got []string
	for _, evt := range agent.until("spec.create_request", "", len(want))[:len(want)] {
		got = append(got, evt.Extensions()["resourceid"].(string))
	}
	if !slices.Equal(got, want) {
		t.Error("the works were sent in another order than they were accepted")
	}
}

// An agent may speak for its own consumer only, whatever its events claim.
func TestAgentCannotSpeakForAnother(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	honest, liar := r.consumer(s), r.consumer(s)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(honest, "x")
	cs.must("create", b)
	evil := r.agentWire(liar)
	evil.send("agentevents", "status.update_request", map[string]any{
		"resourceid": b.ID, "resourceversion": 1, "sequenceid": "1", "clustername": honest, "statushash": "x",
	}, map[string]any{"conditions": []metav1.Condition{{Type: "Applied", Status: "True", Reason: "Lie", ObservedGeneration: 1}}})
	evil.report(b.ID, 1, 2, "Applied")
	own := newBundle(liar, "x")
	cs.must("create", own)
	evil.report(own.ID, 1, 3, "Applied")
	cs.untilApplied(own.ID, 1)
	if st := cs.status(b.ID); st.Version != 0 {
		t.Errorf("the report of another consumer's agent was taken in: %+v", st)
	}
}

// What agents send that cannot be read is dropped and counted, and nothing stops.
func TestGarbageFromAgentsIsDropped(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.send("agentevents", "status.update_request", map[string]any{"resourceid": b.ID}, "no status")
	agent.send("agentevents", "status.update_request", map[string]any{"resourceid": b.ID, "sequenceid": "x", "resourceversion": 1}, map[string]any{})
	agent.send("agentevents", "spec.resync_request", nil, []int{1})
	agent.send("agentevents", "nonsense", nil, nil)
	agent.report(b.ID, 1, 1, "Applied")
	cs.untilApplied(b.ID, 1)
}

// Two replicas share the consumers; when one goes the other takes over, and statuses reach subscribers of either.
func TestReplicasTakeOver(t *testing.T) {
	r := newRegion(t)
	one, two := r.startServer(), r.startServer()
	var consumers []string
	for range 4 {
		c := r.consumer(one)
		r.startAgent(c)
		consumers = append(consumers, c)
	}
	onOne, onTwo := r.source(one, "cluster-service"), r.source(two, "cluster-service")
	onOne.subscribe()
	onTwo.subscribe()
	for _, c := range consumers {
		a, b := newBundle(c, "x"), newBundle(c, "x")
		onOne.must("create", a)
		onTwo.must("create", b)
		for _, id := range []string{a.ID, b.ID} {
			onOne.untilApplied(id, 1)
			onTwo.untilApplied(id, 1)
		}
	}
	eventually(t, 20*time.Second, "each consumer is served once", func() error {
		served := append(one.server.Dispatcher().Serving(), two.server.Dispatcher().Serving()...)
		slices.Sort(served)
		if len(served) != len(slices.Compact(slices.Clone(served))) || len(served) != len(consumers) {
			return fmt.Errorf("served: %v", served)
		}
		return nil
	})
	one.stop()
	for _, c := range consumers {
		b := newBundle(c, "x")
		onTwo.must("create", b)
		onTwo.untilApplied(b.ID, 1)
	}
}

// The broker cuts connections all the time; nothing is lost and nothing is left.
func TestBrokerDropsConnections(t *testing.T) {
	r := newRegion(t)
	s := r.startServer()
	consumer := r.consumer(s)
	r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	stop := make(chan struct{})
	var dropping sync.WaitGroup
	dropping.Add(1)
	go func() {
		defer dropping.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
				r.broker.Drop([]string{"", consumer, "maestro-server"}[i%3])
			}
		}
	}()
	works := make([]bundle, 100)
	for i := range works {
		works[i] = newBundle(consumer, "x")
	}
	inParallel(4, works, func(b bundle) { cs.must("create", b); cs.must("update", b.with("y")) })
	close(stop)
	dropping.Wait()
	for _, b := range works {
		cs.until(b.ID, "applied", func(st statusEvent) bool { return st.applied(st.Version) && st.Version == 2 })
	}
	for _, b := range works {
		cs.must("delete", b)
	}
	r.broker.Drop("")
	for _, b := range works {
		cs.untilDeleted(b.ID)
	}
}

// An unreachable broker or database is fatal to the published server at its start. Ours waits, and says for what.
func TestPublishedFault_UnreachableBrokerAtStartIsFatal(t *testing.T) {
	r := newRegion(t)
	address := r.brokerAt
	_ = r.broker.Close()
	s := r.startServerUnready()
	eventually(t, 20*time.Second, "the server waits for the broker alone", func() error {
		checks := s.server.Checks()
		if err := checks["database"](t.Context()); err != nil {
			return err
		}
		if checks["mqtt"](t.Context()) == nil {
			return errors.New("it says that the broker is there")
		}
		return nil
	})
	consumer := r.consumer(s)
	r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	r.startBroker(address)
	cs.untilApplied(b.ID, 1)
}

// The same for the database, at the start and later.
func TestDatabaseGoesAndComes(t *testing.T) {
	r := newRegion(t)
	gate := newGate(t, r.db)
	r.db = gate.url
	gate.close()
	s := r.startServerUnready()
	cs := r.source(s, "cluster-service")
	b := newBundle("nobody", "x")
	if _, err := cs.publish("create", b); status.Code(err) != codes.Unavailable {
		t.Fatalf("without a database a publish is answered %v", err)
	}
	if err := s.server.Checks()["database"](t.Context()); err == nil {
		t.Error("the server says that the database is there")
	}
	gate.open()
	eventually(t, 30*time.Second, "the server is ready", func() error {
		for _, check := range s.server.Checks() {
			if err := check(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	consumer := r.consumer(s)
	r.startAgent(consumer)
	cs.subscribe()
	first := newBundle(consumer, "x")
	cs.must("create", first)
	cs.untilApplied(first.ID, 1)

	gate.close()
	if _, err := cs.publish("create", newBundle(consumer, "x")); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("without a database a publish is answered %v", err)
	}
	gate.open()
	second := newBundle(consumer, "x")
	eventually(t, 30*time.Second, "publishing works again", func() error { _, err := cs.publish("create", second); return err })
	cs.untilApplied(second.ID, 1)
}
