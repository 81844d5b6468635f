package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// The published server: "on the gRPC path, resource insert, event insert and NOTIFY are separate statements; a crash
// between loses the event".
func TestPublishedFault_ResourceStoredButNeverDelivered(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	first := r.StartServer()
	consumer := r.consumer(first)
	cs := r.source(first, "cluster-service")
	// Without the broker nothing can be delivered. Then the server stops.
	address := r.BrokerAddress
	_ = r.Broker.Close()
	var works []bundle
	for range 20 {
		b := newBundle(consumer, "x")
		cs.must("create", b)
		works = append(works, b)
	}
	first.Stop()
	r.StartBroker(address)

	second := r.StartServer()
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
	t.Parallel()
	r := newRegion(t)
	r.Tune = func(c *app.Config) { c.SafetyPoll = 200 * time.Millisecond }
	s := r.StartServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	b := newBundle(consumer, "x")
	// Inserted directly, without a notification.
	r.insert(s, b)
	agent.until("spec.create_request", b.ID, 1)
}

// The published server: an oversized message makes the broker close the connection, is queued again and blocks all others.
func TestPublishedFault_OversizedMessageBlocksOthers(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s, consumer, agent, cs := r.withFakeAgent()
	rejected := newBundle(consumer, strings.Repeat("x", 600<<10))
	r.insert(s, rejected)
	healthy := newBundle(consumer, "x")
	cs.must("create", healthy)
	agent.until("spec.create_request", healthy.ID, 1)
	st := cs.until(rejected.ID, "reported as not delivered", func(st statusEvent) bool {
		return meta.IsStatusConditionFalse(st.Conditions, "Delivered")
	})
	if c := meta.FindStatusCondition(st.Conditions, "Delivered"); c.Reason != "TooLarge" {
		t.Errorf("reason %s", c.Reason)
	}
	if n := len(agent.events("spec.create_request", rejected.ID)); n != 0 {
		t.Errorf("the oversized message was sent %d times", n)
	}
	// A smaller version is delivered.
	cs.must("update", rejected.with("small"))
	agent.until("spec.update_request", rejected.ID, 1)
}

// TestBrokerLimitPostponesOne announces a lower Maximum Packet Size than that of Event Grid (MQTT 5, section 3.2.2.3.6). A message above it is not sent, and its
// source knows the reason; others are delivered. When a broker accepts it, it is delivered.
func TestBrokerLimitPostponesOne(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.Tune = func(c *app.Config) { c.MaxResend, c.Resend = 2*time.Second, time.Second }
	restart := func(limit uint32) {
		address := r.BrokerAddress
		_ = r.Broker.Close()
		r.MaxPacketBytes = limit
		r.StartBroker(address)
	}
	restart(256 << 10)
	_, consumer, agent, cs := r.withFakeAgent()
	rejected, healthy := newBundle(consumer, strings.Repeat("x", 300<<10)), newBundle(consumer, strings.Repeat("x", 200<<10))
	cs.must("create", rejected)
	cs.must("create", healthy)
	agent.until("spec.create_request", healthy.ID, 1)
	st := cs.until(rejected.ID, "reported as not delivered", func(st statusEvent) bool {
		return meta.IsStatusConditionFalse(st.Conditions, "Delivered")
	})
	if c := meta.FindStatusCondition(st.Conditions, "Delivered"); c.Reason != "TooLarge" || !strings.Contains(c.Message, "the limit is 262144") {
		t.Errorf("the condition is %+v", c)
	}
	restart(0)
	agent.until("spec.create_request", rejected.ID, 1)
}

// A message that makes the broker close the connection for another reason is postponed after some attempts.
func TestPublishedFault_RejectedMessageBlocksOthers(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.Tune = func(c *app.Config) { c.MaxResend = 2 * time.Second; c.Resend = time.Second }
	_, consumer, agent, cs := r.withFakeAgent()
	r.Broker.RejectPayload("rejected payload")
	rejected, healthy := newBundle(consumer, "rejected payload"), newBundle(consumer, "x")
	cs.must("create", rejected)
	cs.must("create", healthy)
	st := cs.until(rejected.ID, "reported as not delivered", func(st statusEvent) bool {
		return meta.IsStatusConditionFalse(st.Conditions, "Delivered")
	})
	if c := meta.FindStatusCondition(st.Conditions, "Delivered"); c.Reason != "NotDeliverable" {
		t.Errorf("reason %s", c.Reason)
	}
	agent.until("spec.create_request", healthy.ID, 1)
	// When the broker accepts it, it is delivered.
	r.Broker.RejectPayload("")
	agent.until("spec.create_request", rejected.ID, 1)
}

// insert stores a resource and its delivery without the checks and the notification of a request.
func (r *region) insert(s *maestrotest.Server, b bundle) {
	r.t.Helper()
	spec := fmt.Sprintf(`{"manifests":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","namespace":"default"},"data":{"key":"%s"}}]}`,
		b.configMapName(), b.Manifests[0].(map[string]any)["data"].(map[string]any)["key"])
	must.Get(s.Server.Store().Pool().Exec(r.t.Context(), `
		with r as (insert into resources (id, source, consumer, version, spec, content_hash) values ($1, 'cluster-service', $2, 1, $3, '') returning id, consumer)
		insert into deliveries (resource_id, consumer) select id, consumer from r`, b.ID, b.Consumer, []byte(spec)))(r.t)
}

// The published server: a deletion whose confirmation is lost stays unfinished forever.
func TestPublishedFault_UnconfirmedDeleteIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.Tune = func(c *app.Config) { c.Resend = 100 * time.Millisecond }
	s, consumer, agent, cs := r.withFakeAgent()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.until("spec.create_request", b.ID, 1)
	cs.must("delete", b)
	agent.until("spec.delete_request", b.ID, 3)
	if code := r.Call(s, "GET", "/resource-bundles/"+b.ID, nil, nil); code != 200 {
		t.Errorf("the resource was removed before the agent confirmed: %d", code)
	}
	agent.report(b.ID, 1, 1, "Deleted")
	cs.untilDeleted(b.ID)
}

// The published server never sends an unacknowledged spec again before the agent reconnects.
func TestPublishedFault_UnconfirmedSpecIsNeverSentAgain(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.Tune = func(c *app.Config) { c.Resend = 100 * time.Millisecond }
	s := r.StartServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.until("spec.create_request", b.ID, 3)
	// The server also requests the status, in case that only the report was lost.
	agent.until("status.resync_request", "", 2)
	agent.report(b.ID, 1, 1, "Applied")
	eventually.Soon(t, "the delivery is confirmed", func() error {
		var n int
		if err := s.Server.Store().Pool().QueryRow(t.Context(), `select count(*) from deliveries`).Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d deliveries, %v", n, err)
		}
		return nil
	})

}

// The published server's broadcaster waits for its slowest subscriber.
func TestPublishedFault_SlowSubscriberStallsOthers(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	// It never reads. Neither its queue nor flow control may affect other subscribers.
	slow := r.source(s, "cluster-service")
	stream := must.Get(slow.client.Subscribe(t.Context(), &pbv1.SubscriptionRequest{Source: "cluster-service"}))(t)
	must.Get(stream.Header())(t)
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
		cs.until(b.ID, "reported three times", func(st statusEvent) bool { return st.is("Round3") })
	}
}

// A consumer whose agent never responds delays no other consumer.
func TestConsumersAreIndependent(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	silent, responsive := r.consumer(s), r.consumer(s)
	agent := r.agentWire(responsive)
	cs := r.source(s, "cluster-service")
	works := make([]bundle, 200)
	for i := range works {
		works[i] = newBundle(silent, "x")
	}
	cs.mustAll("create", works, 8)
	b := newBundle(responsive, "x")
	cs.must("create", b)
	agent.until("spec.create_request", b.ID, 1)
}

// Within a consumer, new work is sent in the order in which it was accepted.
func TestDeliveryIsOrdered(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.Tune = func(c *app.Config) { c.Resend = time.Minute } // the agent confirms nothing
	s := r.StartServer()
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
