package conformance

import (
	"testing"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The published server drops the statuses of an agent whose clock went back.
func TestPublishedFault_AgentClockGoingBackSilencesIt(t *testing.T) {
	r := newRegion(t)
	_, consumer, agent, cs := r.withPlayedAgent()
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
	s, consumer, agent, cs := r.withPlayedAgent()
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
	if code := r.Call(s, "GET", "/resource-bundles/"+b.ID, nil, nil); code != 404 {
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
	s := r.StartServer()
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
	_, consumer, cs := r.withAgent()
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
	_, consumer, cs := r.withAgent()
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

// An agent may speak for its own consumer only, whatever its events claim.
func TestAgentCannotSpeakForAnother(t *testing.T) {
	r := newRegion(t)
	s := r.StartServer()
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
	_, consumer, agent, cs := r.withPlayedAgent()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.send("agentevents", "status.update_request", map[string]any{"resourceid": b.ID}, "no status")
	agent.send("agentevents", "status.update_request", map[string]any{"resourceid": b.ID, "sequenceid": "x", "resourceversion": 1}, map[string]any{})
	agent.send("agentevents", "spec.resync_request", nil, []int{1})
	agent.send("agentevents", "nonsense", nil, nil)
	agent.report(b.ID, 1, 1, "Applied")
	cs.untilApplied(b.ID, 1)
}
