package portal

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

const testSession = "7d3f1b5a-2c4e-4f60-9a8b-1c2d3e4f5a06"

// fillSessions sets the responses about access sessions and recordings.
func (f *fakeAPI) fillSessions(text string) {
	began, ends := ago(7*time.Minute), testTime.Add(8*time.Minute)
	cluster := adminv1.ElevationCluster{UID: testUID, ResourceID: text}
	session := adminv1.AccessSession{ID: testSession, State: adminv1.AccessSessionReady, Mode: adminv1.AccessAdmin, Cluster: cluster, Name: text, ElevationID: testElevation, Reason: text, Ticket: text,
		Emergency: true, RequestTime: began, ReadyTime: &began, ExpirationTime: &ends, CertificateFingerprint: text}
	ended := session
	ended.ID, ended.State, ended.EndTime, ended.EndReason = "ended", adminv1.AccessSessionEnded, &began, text
	recording := adminv1.Recording{ID: text, SessionID: testSession, Cluster: cluster, Name: text, Reason: text, Ticket: text, Kind: "pods/exec", Namespace: text, Pod: text, Container: text, StartTime: began}
	interrupted, complete := recording, recording
	interrupted.EndTime, interrupted.EndReason = &testTime, text
	complete.EndTime, complete.EndReason, complete.Complete = &testTime, text, true
	recordings := adminv1.RecordingList{Items: []adminv1.Recording{recording, interrupted, complete}}
	f.responses["/access-sessions"] = adminv1.AccessSessionList{Items: []adminv1.AccessSession{session, ended}}
	f.responses["/access-sessions/"+testSession], f.responses["/access-sessions/ended"] = session, ended
	f.responses["DELETE /access-sessions/"+testSession] = ended
	f.responses["/recordings"] = recordings
}

// TestSessionIsEnded ends an open session. The page of an ended one does not offer that.
func TestSessionIsEnded(t *testing.T) {
	h := newHarness(t)
	h.api.fill(hostile)
	b := h.newBrowser()
	b.signIn("oncall@example.com", "/me")
	const action = `action="/access-sessions/`
	if page := b.get("/access-sessions/" + testSession); !strings.Contains(page.body, action) {
		t.Errorf("an open session cannot be ended: %s", page.body)
	}
	if page := b.get("/access-sessions/ended"); page.StatusCode != http.StatusOK || strings.Contains(page.body, action) {
		t.Errorf("an ended session can be ended: %s", page.Status)
	}
	if response := b.post("/access-sessions/"+testSession+"/end", nil); response.location() != "/access-sessions/"+testSession {
		t.Fatalf("%s: %s", response.Status, response.body)
	}
	want := []apiRequest{{Method: http.MethodDelete, Path: "/access-sessions/" + testSession, Person: "oncall@example.com"}}
	if diff := cmp.Diff(want, h.api.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestSessionWithoutRecordings shows a session although its recordings could not be read, and states that.
func TestSessionWithoutRecordings(t *testing.T) {
	h := newHarness(t)
	h.api.fill(hostile)
	b := h.newBrowser()
	b.signIn("oncall@example.com", "/me")
	h.api.refused["/recordings"] = http.StatusServiceUnavailable
	if page := b.get("/access-sessions/" + testSession); page.StatusCode != http.StatusOK || !strings.Contains(page.body, "Recordings could not be read") {
		t.Errorf("%s: %s", page.Status, page.body)
	}
	h.api.refused["/access-sessions/none"] = http.StatusNotFound
	if page := b.get("/access-sessions/none"); page.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown session: %s", page.Status)
	}
}
