package portal

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

const (
	testSession   = "7d3f1b5a-2c4e-4f60-9a8b-1c2d3e4f5a06"
	testRecording = "2a6c1d0e-5b7f-4c3d-9e8f-0a1b2c3d4e5f"
)

// fillSessions sets the responses about access sessions and recordings.
func (f *fakeAPI) fillSessions(text string) {
	began, ends := ago(7*time.Minute), testTime.Add(8*time.Minute)
	cluster := adminv1.ElevationCluster{UID: testUID, ResourceID: text}
	session := adminv1.AccessSession{ID: testSession, State: adminv1.AccessSessionReady, Mode: adminv1.AccessAdmin, Cluster: cluster, Name: text, ElevationID: testElevation, Reason: text, Ticket: text,
		Emergency: true, RequestTime: began, ReadyTime: &began, ExpirationTime: &ends, CertificateFingerprint: text,
		Objects: []adminv1.AccessSessionObject{{Request: text, Verb: text, Kind: text, Namespace: text, Name: text, Time: began, Outcome: "Left", Reason: text}}}
	ended := session
	ended.ID, ended.State, ended.EndTime, ended.EndReason = "ended", adminv1.AccessSessionEnded, &began, text
	recording := adminv1.Recording{ID: testRecording, SessionID: testSession, Cluster: cluster, Name: text, Reason: text, Ticket: text, Kind: "pods/exec", Namespace: text, Pod: text, Container: text, StartTime: began}
	interrupted, complete := recording, recording
	interrupted.EndTime, interrupted.EndReason = &testTime, text
	complete.EndTime, complete.EndReason, complete.Complete = &testTime, text, true
	recordings := adminv1.RecordingList{Items: []adminv1.Recording{recording, interrupted, complete}}
	f.responses["/access-sessions"] = adminv1.AccessSessionList{Items: []adminv1.AccessSession{session, ended}}
	f.responses["/access-sessions/"+testSession], f.responses["/access-sessions/ended"] = session, ended
	f.responses["DELETE /access-sessions/"+testSession] = ended
	f.responses["/recordings"] = recordings
	f.responses["/recordings/"+testRecording] = complete
	f.responses["/recordings/"+testRecording+"/content"] = streamedContent{text: castHeader + `[0.2, "r", "120x40"]` + "\n" + `[1.4, "i", "ls /tmp\r"]` + "\n" + `[1.6, "o", "\u001b[1mcore.1  heap.out\u001b[0m\r\n"]` + "\n" +
		`[9.1, "i", "exit\r"]` + "\n" + `[9.2, "m", "the command has ended"]` + "\n"}
}

// TestRecordingIsShownOnRequest: the page of a recording reads its content only for the form. It shows hostile text as text, and states that a recording
// is longer, or that its rest could not be read.
func TestRecordingIsShownOnRequest(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	const path, content = "/recordings/" + testRecording, "/recordings/" + testRecording + "/content"
	if page := b.get(path); page.StatusCode != http.StatusOK || !strings.Contains(page.body, `action="`+content+`"`) {
		t.Errorf("%s: %s", page.Status, page.body)
	}
	if slices.ContainsFunc(h.api.reads, func(read string) bool { return strings.HasSuffix(read, "/content") }) {
		t.Error("the page has read the content")
	}
	events := castHeader + `[0.5, "i", "cat secret\r"]` + "\n" + `[0.7, "o", "\u001b[1m<script>alert(1)</script>\r\n"]` + "\n"
	for name, tc := range map[string]struct {
		response streamedContent
		want     []string
	}{
		"complete":   {streamedContent{events, false}, []string{"cat secret⏎", "&lt;script&gt;alert(1)&lt;/script&gt;"}},
		"aborted":    {streamedContent{events, true}, []string{"cat secret⏎", "could not be read"}},
		"long":       {streamedContent{castHeader + fmt.Sprintf("[0.5, \"o\", %q]\n", strings.Repeat("x", maxTranscript+1)), false}, []string{"The recording is longer", "Nothing was typed"}},
		"unreadable": {streamedContent{events + "x\n", false}, []string{"cat secret⏎", "not in the format"}},
	} {
		h.api.responses[content] = tc.response
		page := b.post(content, nil)
		if page.StatusCode != http.StatusOK || strings.Contains(page.body, "<script>alert") || strings.Contains(page.body, `action="`+content) {
			t.Errorf("%s: %s: %s", name, page.Status, page.body)
		}
		for _, want := range tc.want {
			if !strings.Contains(page.body, want) {
				t.Errorf("%s: the page does not have %q: %s", name, want, page.body)
			}
		}
	}
	h.api.refused[content] = http.StatusForbidden
	if page := b.post(content, nil); page.StatusCode != http.StatusForbidden || !strings.Contains(page.body, "The request was &lt;refused&gt;.") {
		t.Errorf("%s: %s", page.Status, page.body)
	}
	if len(h.api.requests) > 0 {
		t.Errorf("requests that change something: %+v", h.api.requests)
	}
}

// TestSessionIsEnded ends an open session. The page of an ended one does not offer that.
func TestSessionIsEnded(t *testing.T) {
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
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
	t.Parallel()
	h := newFilledHarness(t)
	b := h.signedIn("oncall@example.com", "/me")
	h.api.refused["/recordings"] = http.StatusServiceUnavailable
	if page := b.get("/access-sessions/" + testSession); page.StatusCode != http.StatusOK || !strings.Contains(page.body, "Recordings could not be read") {
		t.Errorf("%s: %s", page.Status, page.body)
	}
	h.api.refused["/access-sessions/none"] = http.StatusNotFound
	if page := b.get("/access-sessions/none"); page.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown session: %s", page.Status)
	}
}
