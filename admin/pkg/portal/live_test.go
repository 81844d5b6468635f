package portal

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/admin/pkg/live"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// liveStream is an open stream of events.
type liveStream struct {
	t      testing.TB
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// liveEvent is an event of a stream.
type liveEvent struct{ name, id, data string }

// follow opens a stream. It ends when the test ends, if not earlier.
func (b *browser) follow(path, lastEventID string) *liveStream {
	b.h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, b.h.url+path, nil))(b.h.t)
	if lastEventID != "" {
		request.Header.Set("Last-Event-ID", lastEventID)
	}
	response := must.Get(b.client.Do(request))(b.h.t)
	b.h.t.Cleanup(func() { cancel(); _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		b.h.t.Fatalf("%s: %s with the content type %q", path, response.Status, response.Header.Get("Content-Type"))
	}
	return &liveStream{t: b.h.t, lines: bufio.NewScanner(response.Body), cancel: cancel}
}

// next returns the next event; its name is empty after the end of the stream.
func (s *liveStream) next() liveEvent {
	var event liveEvent
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "event":
			event.name = value
		case "id":
			event.id = value
		case "data":
			event.data = value
		case "":
			return event
		}
	}
	return liveEvent{}
}

// expect fails unless the next event has a name. It returns the event.
func (s *liveStream) expect(name string) liveEvent {
	s.t.Helper()
	event := s.next()
	if event.name != name {
		s.t.Fatalf("the stream sent %+v, want %s", event, name)
	}
	return event
}

// expectUnchanged fails unless the next event states that the page has not changed.
func (s *liveStream) expectUnchanged() {
	s.t.Helper()
	if event := s.next(); event.name != "current" && event.name != "behind" {
		s.t.Fatalf("the stream of an unchanged page sent %+v", event)
	}
}

// expectEnd fails unless the stream ends with a message.
func (s *liveStream) expectEnd(message string) {
	s.t.Helper()
	var ending live.Ending
	event := s.expect("end")
	if err := json.Unmarshal([]byte(event.data), &ending); err != nil || !strings.Contains(ending.Message, message) {
		s.t.Errorf("the stream ends with %s (%v), want %q", event.data, err, message)
	}
	if event := s.next(); event.name != "" {
		s.t.Errorf("an event after the end: %+v", event)
	}
}

const testOperationStream = "/live/operations/" + testOperation

// TestOperationStreamReportsChanges follows an operation with two windows, through the change feed. A window that returns receives a change that
// it missed, and none that it has seen.
func TestOperationStreamReportsChanges(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	operation := h.api.responses["/operations/"+testOperation].(adminv1.Operation)
	h.followChanges()
	b := h.signedIn("oncall@example.com", "/me")
	first, second := b.follow(testOperationStream, ""), b.follow(testOperationStream+"?after="+h.changes.Hub.Revision(), "")
	first.expect("changed")
	second.expectUnchanged()
	h.setOperation(operation)
	id := first.expect("changed").id
	second.expect("changed")
	b.follow(testOperationStream, id).expectUnchanged()
	b.follow(testOperationStream+"?after="+id, "").expectUnchanged()
	b.follow(testOperationStream+"?after=unknown", id).expectUnchanged()
	first.cancel()
	operation.Attempts++
	h.setOperation(operation)
	second.expect("changed")
	b.follow(testOperationStream, id).expect("changed")
}

// TestStreamNeedsTheRightsOfItsPage opens streams without a session, without a role, and for an operation that does not exist.
func TestStreamNeedsTheRightsOfItsPage(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	h.newBrowser().follow(testOperationStream, "").expectEnd("Your session has ended.")
	guest := h.newBrowser()
	guest.signIn("guest@example.com", "/me")
	guest.follow(testOperationStream, "").expectEnd("The role reader is required.")
	b := h.signedIn("oncall@example.com", "/me")
	h.api.refused["/operations/unknown"] = http.StatusNotFound
	b.follow("/live/operations/unknown", "").expectEnd("The request was <refused>.")
	h.api.refused["/operations/"+testOperation] = http.StatusServiceUnavailable
	b.follow(testOperationStream, "").expectEnd("Trying again.")
}

// TestStreamDoesNotExtendTheSession checks that a session ends although a window follows a page, which connects from time to time.
func TestStreamDoesNotExtendTheSession(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	h.pass(SessionIdle / 2)
	b.follow(testOperationStream, "").expect("changed")
	h.pass(SessionIdle / 2)
	b.follow(testOperationStream, "").expectEnd("Your session has ended.")
}

// TestSignOutEndsStreams checks that the streams of a session end with it, and those of other sessions do not.
func TestSignOutEndsStreams(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b, other := h.newBrowser(), h.newBrowser()
	b.signIn("oncall@example.com", "/me")
	other.signIn("oncall@example.com", "/me")
	stream, stays := b.follow(testOperationStream, ""), other.follow(testOperationStream, "")
	stream.expect("changed")
	stays.expect("changed")
	b.post("/sign-out", map[string][]string{})
	stream.expectEnd("Your session has ended.")
	h.changes.Hub.PublishAll()
	stays.expect("changed")
}

// TestShutdownDoesNotWaitForStreams stops the server with open streams. Each browser is asked to connect elsewhere.
func TestShutdownDoesNotWaitForStreams(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	stream := b.follow(testOperationStream, "")
	stream.expect("changed")
	h.pages.Config.RegisterOnShutdown(h.changes.Hub.Release)
	if err := h.pages.Config.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	stream.expectEnd("")
}

// TestClusterStreamReportsChangesOfAllSources changes a cluster in Cosmos DB, in Cluster Service, by an action, and by a component that is away.
// Changes of another cluster send nothing.
func TestClusterStreamReportsChangesOfAllSources(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	id := testResourceID + "payments-prod"
	commit := func(add func(*database.Batch), subscription string) {
		t.Helper()
		batch := h.db.NewBatch(subscription)
		add(batch)
		must.Do(t, batch.Commit(t.Context()))
	}
	key := must.Get(database.ResourceKey(strings.ToUpper(id[:20]) + id[20:]))(t)
	pool := must.Get(database.ResourceKey(id + "/nodePools/workers"))(t)
	h.followChanges()
	fleet := func(change *clusterservicev1.WatchResponse) { h.fleet.changes <- change }
	for _, change := range []struct {
		name string
		make func()
	}{
		{"the document of the cluster", func() {
			commit(func(batch *database.Batch) {
				database.Create(batch, h.db.Clusters(), key, database.ClusterDocument{UID: testUID})
			}, key.SubscriptionID)
		}},
		{"the document of a node pool", func() {
			commit(func(batch *database.Batch) {
				database.Create(batch, h.db.NodePools(), pool, database.NodePoolDocument{UID: "pool"})
			}, pool.SubscriptionID)
		}},
		{"the cluster", func() {
			fleet(&clusterservicev1.WatchResponse{Revision: 3, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: testUID}}})
		}},
		{"a node pool", func() {
			fleet(&clusterservicev1.WatchResponse{Revision: 4, Event: &clusterservicev1.WatchResponse_NodePool{NodePool: &clusterservicev1.NodePool{ClusterUid: testUID}}})
		}},
		{"an upgrade", func() {
			fleet(&clusterservicev1.WatchResponse{Revision: 5, Event: &clusterservicev1.WatchResponse_Upgrade{Upgrade: &clusterservicev1.Upgrade{ClusterUid: testUID}}})
		}},
		{"an action", func() {
			h.setOperation(adminv1.Operation{ID: testOperation, State: adminv1.Running, Target: adminv1.Target{ClusterUID: testUID}})
		}},
		{"a component that is away", func() {
			commit(func(batch *database.Batch) {
				database.Create(batch, h.db.ComponentAbsences(), database.ComponentAbsencesKey(), database.ComponentAbsencesDocument{})
			}, database.AdminPartition)
		}},
	} {
		stream := b.follow("/live/clusters/"+testUID+"?after="+h.changes.Hub.Revision(), "")
		stream.expectUnchanged()
		fleet(&clusterservicev1.WatchResponse{Revision: 2, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: testDeleting}}})
		change.make()
		if event := stream.next(); event.name != "changed" {
			t.Fatalf("a change of %s sent %+v", change.name, event)
		}
		stream.cancel()
	}
}

// TestRegionStreamReportsChanges changes a cluster and an elevation.
func TestRegionStreamReportsChanges(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	h.followChanges()
	b := h.signedIn("oncall@example.com", "/me")
	for name, change := range map[string]func(){
		"a cluster": func() {
			h.fleet.changes <- &clusterservicev1.WatchResponse{Revision: 3, Event: &clusterservicev1.WatchResponse_Cluster{Cluster: &clusterservicev1.Cluster{Uid: testUID}}}
		},
		"an elevation": func() {
			batch := h.db.NewBatch(database.AdminPartition)
			database.Create(batch, h.db.Elevations(), database.ElevationKey(testElevation), database.ElevationDocument{ElevationID: testElevation})
			must.Do(t, batch.Commit(t.Context()))
		},
	} {
		stream := b.follow("/live/region?after="+h.changes.Hub.Revision(), "")
		stream.expectUnchanged()
		change()
		if event := stream.next(); event.name != "changed" {
			t.Fatalf("a change of %s sent %+v", name, event)
		}
		stream.cancel()
	}
	guest := h.newBrowser()
	guest.signIn("guest@example.com", "/me")
	guest.follow("/live/region", "").expectEnd("The role reader is required.")
	guest.follow("/live/clusters/"+testUID, "").expectEnd("The role reader is required.")
}

// TestSignOutOnAnotherReplicaEndsStreams ends a session in Cosmos DB.
func TestSignOutOnAnotherReplicaEndsStreams(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	h.followChanges()
	b := h.signedIn("oncall@example.com", "/me")
	stream := b.follow(testOperationStream, "")
	stream.expect("changed")
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, h.url, nil)
	address := must.Get(url.Parse(h.url))(t)
	for _, cookie := range b.client.Jar.Cookies(address) {
		request.AddCookie(cookie)
	}
	other := &Sessions{Database: h.db, Now: h.clock, ended: func(string) {}}
	found := must.Get(other.find(t.Context(), request))(t)
	must.Do(t, other.end(t.Context(), found))
	stream.expectEnd("Your session has ended.")
}

// TestListStreamsReportChanges follows the lists of operations, of elevations and of access sessions, an elevation and an access session. Each gets the
// changes of its objects only.
func TestListStreamsReportChanges(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	h.followChanges()
	b := h.signedIn("oncall@example.com", "/me")
	elevate := func(id string) {
		t.Helper()
		batch := h.db.NewBatch(database.AdminPartition)
		database.Create(batch, h.db.Elevations(), database.ElevationKey(id), database.ElevationDocument{ElevationID: id})
		must.Do(t, batch.Commit(t.Context()))
	}
	open := func(path string) *liveStream {
		t.Helper()
		stream := b.follow(path+"?after="+h.changes.Hub.Revision(), "")
		stream.expectUnchanged()
		return stream
	}
	operations, elevations, elevation := open("/live/operations"), open("/live/access"), open("/live/access/"+testElevation)
	sessions, session := open("/live/access-sessions"), open("/live/access-sessions/"+testSession)
	elevate("e0000000-0000-4000-8000-000000000001")
	elevations.expect("changed")
	elevate(testElevation)
	elevations.expect("changed")
	elevation.expect("changed")
	h.setOperation(adminv1.Operation{ID: testOperation, State: adminv1.Running})
	operations.expect("changed")
	h.setAccessSession("00000000-0000-4000-8000-000000000001")
	sessions.expect("changed")
	h.setAccessSession(testSession)
	sessions.expect("changed")
	session.expect("changed")
	h.setRecording(testSession)
	session.expect("changed")
	guest := h.newBrowser()
	guest.signIn("guest@example.com", "/me")
	for _, path := range []string{"/live/operations", "/live/access", "/live/access/" + testElevation, "/live/access-sessions", "/live/access-sessions/" + testSession} {
		guest.follow(path, "").expectEnd("The role reader is required.")
	}
}

// setAccessSession stores an access session, and setRecording the description of a recording of one.
func (h *harness) setAccessSession(id string) {
	h.t.Helper()
	key := database.AccessSessionKey(testUID, id)
	batch := h.db.NewBatch(key.SubscriptionID)
	database.Create(batch, h.db.AccessSessions(), key, database.AccessSessionDocument{SessionID: id, ClusterUID: testUID})
	must.Do(h.t, batch.Commit(h.t.Context()))
}

func (h *harness) setRecording(session string) {
	h.t.Helper()
	must.Do(h.t, h.db.PutAccessRecording(h.t.Context(), database.AccessRecordingDocument{RecordingID: "r", SessionID: session, ClusterUID: testUID}))
}

// TestElevationsWithFormsDoNotUpdateThemselves reads the page of an elevation in each state, as its engineer and as another one. A page with a field for a
// decision must not change while somebody types.
func TestElevationsWithFormsDoNotUpdateThemselves(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	for _, state := range []adminv1.ElevationState{adminv1.ElevationRequested, adminv1.ElevationApproved, adminv1.ElevationDenied, adminv1.ElevationActive, adminv1.ElevationEnded, adminv1.ElevationExpired} {
		for _, owner := range []string{"oncall", "another"} {
			elevation := h.api.responses["/elevations/"+testElevation].(adminv1.Elevation)
			elevation.State, elevation.ObjectID, elevation.Emergency, elevation.Review = state, owner, true, nil
			h.api.responses["/elevations/"+testElevation] = elevation
			body := b.get("/access/" + testElevation).body
			updates, form := strings.Contains(body, `data-live="/live/access/`+testElevation+`"`), strings.Contains(body, `class="pf-v6-c-form"`)
			open := state == adminv1.ElevationRequested || state == adminv1.ElevationApproved || state == adminv1.ElevationActive
			if updates != (open && !form) {
				t.Errorf("%s of %s: updates itself: %t, has a form: %t", state, owner, updates, form)
			}
		}
	}
}
