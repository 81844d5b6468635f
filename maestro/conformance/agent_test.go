package conformance

import (
	"testing"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The published server drops the statuses of an agent whose clock was set back.
func TestPublishedFault_AgentClockSetBackLosesStatuses(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, agent, cs := r.withFakeAgent()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.report(b.ID, 1, 1_000_000, "Applied")
	cs.untilApplied(b.ID, 1)
	// Out of order within one run of the agent: dropped.
	agent.report(b.ID, 1, 999_999, "Stale")
	// From a new run with a slow clock: accepted.
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

// The published server accepts a report of a deletion with any version.
func TestDeletionIsConfirmedForItsVersionOnly(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s, consumer, agent, cs := r.withFakeAgent()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	cs.must("update", b.with("y"))
	// The deletion was not requested, so the resource is delivered again.
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

	// A late report does not create it again, and the server repeats the deletion.
	before := len(agent.events("spec.delete_request", b.ID))
	agent.report(b.ID, 2, 6, "Applied")
	agent.until("spec.delete_request", b.ID, before+1)
	if code := r.Call(s, "GET", "/resource-bundles/"+b.ID, nil, nil); code != 404 {
		t.Errorf("a late report created the resource again: %d", code)
	}
	// The ID may be used again, with higher versions.
	if version := cs.must("create", b); version != 3 {
		t.Errorf("the next incarnation has version %d, want 3", version)
	}
}

// The published server deletes all works that it does not have, for example after its database was restored.
func TestPublishedFault_UnknownWorksAreDeleted(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	agent := r.agentWire(consumer)
	cs := r.source(s, "cluster-service")
	cs.must("create", newBundle(consumer, "x"))
	unknown := uuid.NewString()
	agent.resync(map[string]int64{unknown: 4})
	agent.report(unknown, 4, 1, "Applied")
	sentinel := newBundle(consumer, "x")
	cs.must("create", sentinel)
	agent.until("spec.create_request", sentinel.ID, 1)
	if n := len(agent.events("spec.delete_request", unknown)); n > 0 {
		t.Errorf("an unknown work was deleted without a request")
	}
}

// The published agent creates a deleted work again when an older event arrives late.
func TestPublishedFault_LateEventRecreatesWork(t *testing.T) {
	t.Parallel()
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
		t.Errorf("the deleted work exists again: %v", err)
	}
}

// The published agent hangs when a work is deleted before its finalizer was added.
func TestPublishedFault_DeleteBeforeFinalizerHangs(t *testing.T) {
	t.Parallel()
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

// An agent may report for its own consumer only, even if its events name another.
func TestAgentCannotReportForAnotherConsumer(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	honest, other := r.consumer(s), r.consumer(s)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(honest, "x")
	cs.must("create", b)
	impostor := r.agentWire(other)
	impostor.send("agentevents", "status.update_request", map[string]any{
		"resourceid": b.ID, "resourceversion": 1, "sequenceid": "1", "clustername": honest, "statushash": "x",
	}, map[string]any{"conditions": []metav1.Condition{{Type: "Applied", Status: "True", Reason: "Forged", ObservedGeneration: 1}}})
	impostor.report(b.ID, 1, 2, "Applied")
	own := newBundle(other, "x")
	cs.must("create", own)
	impostor.report(own.ID, 1, 3, "Applied")
	cs.untilApplied(own.ID, 1)
	if st := cs.status(b.ID); st.Version != 0 {
		t.Errorf("the report of another consumer's agent was accepted: %+v", st)
	}
}

// Invalid events of agents are dropped, and the next valid event is processed.
func TestInvalidAgentEventsAreDropped(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, agent, cs := r.withFakeAgent()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	agent.send("agentevents", "status.update_request", map[string]any{"resourceid": b.ID}, "no status")
	agent.send("agentevents", "status.update_request", map[string]any{"resourceid": b.ID, "sequenceid": "x", "resourceversion": 1}, map[string]any{})
	agent.send("agentevents", "spec.resync_request", nil, []int{1})
	agent.send("agentevents", "nonsense", nil, nil)
	agent.report(b.ID, 1, 1, "Applied")
	cs.untilApplied(b.ID, 1)
}
