package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// secretInput is what an engineer typed. Only the content of a recording may have it.
const secretInput = "a-typed-password"

// recordingID returns the ID of a recording.
func recordingID(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }

// file returns the log of a recording.
func (h *harness) recordingFile(id string) string {
	return filepath.Join(h.recordings, recording.LogName(id)+".jsonl")
}

// record stores a recording of the cluster that started some minutes after a fixed time, and returns its description.
func (h *harness) record(t *testing.T, number int, session string, end bool) database.AccessRecordingDocument {
	t.Helper()
	return h.recordWith(t, h.signing, number, session, end)
}

// recordWith is record with the key that signs the recording.
func (h *harness) recordWith(t *testing.T, signing *audit.SigningKey, number int, session string, end bool) database.AccessRecordingDocument {
	t.Helper()
	start := time.Date(2026, 11, 25, 4, number, 0, 0, time.UTC)
	facts := recording.Facts{ID: recordingID(number), SessionID: session, ClusterUID: uid, ResourceID: resourceID, Owner: recording.Person{Name: "oncall", ObjectID: "object-of-oncall"},
		Reason: "a pod hangs", Ticket: "INC-1", Start: start, Kind: "pods/exec", Namespace: "default", Pod: "<script>alert(1)</script>"}
	w, log, err := recording.NewWriter(h.sealing, signing, facts, []string{"cat"})
	if err != nil {
		t.Fatal(err)
	}
	log = append(log, w.Data(start.Add(time.Second), recording.Stdin, []byte(secretInput+"\n"))...)
	for range 100 {
		log = append(log, w.Data(start.Add(2*time.Second), recording.Stdout, bytes.Repeat([]byte("x"), 8<<10))...)
	}
	document := database.AccessRecordingDocument{RecordingID: facts.ID, SessionID: session, ClusterUID: uid, ResourceID: resourceID, Name: "oncall", ObjectID: "object-of-oncall",
		Reason: facts.Reason, Ticket: facts.Ticket, Kind: facts.Kind, Namespace: facts.Namespace, Pod: facts.Pod, StartTime: start}
	if end {
		ended := start.Add(time.Minute)
		log = append(log, w.End(recording.End{Time: ended, Reason: "The client has closed the connection."})...)
		document.EndTime, document.EndReason, document.Complete = &ended, "The client has closed the connection.", true
	}
	document.Bytes = int64(len(log))
	must.Do(t, os.WriteFile(h.recordingFile(facts.ID), log, 0o600))
	must.Do(t, h.db.PutAccessRecording(t.Context(), document))
	return document
}

// content reads the content of a recording over a connection. err is that of an aborted response.
func (h *harness) content(t *testing.T, who, id string) (status int, header http.Header, body string, err error) {
	t.Helper()
	return h.contentWith(t, who, id, "")
}

// contentWith is content with a query.
func (h *harness) contentWith(t *testing.T, who, id, query string) (status int, header http.Header, body string, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+adminv1.Root+"/recordings/"+id+"/content"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+who)
	response, err := h.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, string(content), err
}

// TestRecordingsAreListed lists recordings, of a cluster and of a session, the newest first. The descriptions have nothing of the content.
func TestRecordingsAreListed(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	api := h.another(h.db)
	h.record(t, 1, "session-1", true)
	h.record(t, 2, "session-2", true)
	h.record(t, 3, "session-1", false)
	for query, want := range map[string][]string{
		"": {recordingID(3), recordingID(2), recordingID(1)}, "?cluster=" + uid: {recordingID(3), recordingID(2), recordingID(1)},
		"?session=session-1": {recordingID(3), recordingID(1)}, "?session=none": nil,
	} {
		answer := ask(api, "reader", "", http.MethodGet, "/recordings"+query, "")
		var list adminv1.RecordingList
		if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &list) != nil {
			t.Fatalf("%s: %d: %s", query, answer.Code, answer.Body)
		}
		var ids []string
		for _, item := range list.Items {
			ids = append(ids, item.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: %v, want %v", query, ids, want)
		}
		if strings.Contains(answer.Body.String(), secretInput) {
			t.Errorf("the list has the content: %s", answer.Body)
		}
	}
	answer := ask(api, "reader", "", http.MethodGet, "/recordings/"+strings.ToUpper(recordingID(1)), "")
	var one adminv1.Recording
	if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &one) != nil || one.Pod != "<script>alert(1)</script>" || one.Cluster.UID != uid || !one.Complete || one.EndTime == nil {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
	for path, status := range map[string]int{"/recordings/" + recordingID(9): http.StatusNotFound, "/recordings/none": http.StatusNotFound, "/recordings/" + recordingID(9) + "/content": http.StatusNotFound,
		"/recordings?cluster=none": http.StatusNotFound, "/recordings/" + recordingID(1) + "/content?unverified=1": http.StatusBadRequest, "/recordings?pod=none": http.StatusBadRequest} {
		if answer := ask(api, "oncall", "", http.MethodGet, path, ""); answer.Code != status {
			t.Errorf("%s: %d: %s", path, answer.Code, answer.Body)
		}
	}
}

// TestRecordingIsRead reads a recording. Only the role break-glass may do that, and the audit has it. Nothing of the content is in the audit or the log.
func TestRecordingIsRead(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	one, running := h.record(t, 1, "session-1", true), h.record(t, 2, "session-1", false)
	for _, id := range []string{one.RecordingID, running.RecordingID} {
		status, header, body, err := h.content(t, "oncall", id)
		if err != nil || status != http.StatusOK || header.Get("Content-Type") != adminv1.AsciicastType || header.Get("Cache-Control") != "no-store" {
			t.Fatalf("%d: %v: %v", status, header, err)
		}
		if !strings.Contains(body, secretInput) || strings.Count(body, "\n") < 102 || !strings.HasPrefix(body, `{"version":2`) {
			t.Errorf("the content has %d bytes: %.200s", len(body), body)
		}
	}
	if status, _, body, _ := h.content(t, "operator", one.RecordingID); status != http.StatusForbidden {
		t.Errorf("an operator gets %d: %s", status, body)
	}
	outcomes := map[string]int{}
	for _, record := range h.trail.Records(t) {
		if record.Action == "recordings.content" && record.Object.ID == one.RecordingID && record.Object.Cluster == uid {
			outcomes[record.Outcome]++
		}
		if strings.Contains(fmt.Sprint(record), secretInput) {
			t.Errorf("the audit has the content: %+v", record)
		}
	}
	if outcomes[audit.Succeeded] != 1 {
		t.Errorf("the audit has the outcomes %v", outcomes)
	}
	if strings.Contains(h.log.String(), secretInput) {
		t.Error("the log has the content")
	}
}

// TestChangedRecordingIsAborted changes recordings in the storage. The client gets an error, or a response that does not end, and never a changed recording
// as a whole one.
func TestChangedRecordingIsAborted(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	change := func(number int, change func(lines []string) []string) string {
		t.Helper()
		document := h.record(t, number, "session-1", true)
		text := must.Get(os.ReadFile(h.recordingFile(document.RecordingID)))(t)
		lines := change(strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n"))
		content := strings.Join(lines, "")
		content += strings.Repeat("\n", max(0, len(text)-len(content))) // the length stays
		must.Do(t, os.WriteFile(h.recordingFile(document.RecordingID), []byte(content), 0o600))
		return document.RecordingID
	}
	for name, id := range map[string]string{
		"a line is missing":   change(1, func(lines []string) []string { return slices.Delete(lines, 50, 51) }),
		"the end is missing":  change(2, func(lines []string) []string { return lines[:len(lines)-1] }),
		"lines are exchanged": change(3, func(lines []string) []string { lines[60], lines[61] = lines[61], lines[60]; return lines }),
	} {
		status, _, body, err := h.content(t, "oncall", id)
		if err == nil && status == http.StatusOK {
			t.Errorf("%s: the response of %d bytes is complete", name, len(body))
		}
	}
	facts := change(4, func(lines []string) []string {
		lines[0] = strings.Replace(lines[0], "a pod hangs", "a pod waits", 1)
		return lines
	})
	cut := h.record(t, 5, "session-1", true)
	must.Do(t, os.Truncate(h.recordingFile(cut.RecordingID), cut.Bytes/2))
	another := change(6, func([]string) []string {
		text := must.Get(os.ReadFile(h.recordingFile(h.record(t, 7, "session-1", true).RecordingID)))(t)
		return []string{string(text)}
	})
	for name, id := range map[string]string{"other facts": facts, "half a recording": cut.RecordingID, "another recording": another} {
		if status, _, body, err := h.content(t, "oncall", id); err != nil || status != http.StatusConflict || !strings.Contains(body, "was changed") {
			t.Errorf("%s: %d: %s: %v", name, status, body, err)
		}
	}
	if strings.Count(h.log.String(), "a recording was changed") != 5 || strings.Count(h.log.String(), "a recording has no valid signature") != 1 {
		t.Errorf("the log does not have each change: %s", h.log.String())
	}
}

// TestForgedRecordingIsRefused stores recordings that were written with the public key of the readers, and one that no release has signed. They are refused
// with the reason, and shown as not verified on request. A description with other facts than the recording is refused, too.
func TestForgedRecordingIsRefused(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	attacker := must.Get(audit.GenerateKey())(t)
	forged, unsigned := h.recordWith(t, attacker, 1, "session-1", true), h.recordWith(t, attacker, 2, "session-1", true)
	log := must.Get(os.ReadFile(h.recordingFile(unsigned.RecordingID)))(t)
	first, rest, _ := bytes.Cut(log, []byte(`,"signature":`))
	_, rest, _ = bytes.Cut(rest, []byte("\n"))
	unsigned.Bytes = int64(len(first) + len("}\n") + len(rest))
	must.Do(t, os.WriteFile(h.recordingFile(unsigned.RecordingID), slices.Concat(first, []byte("}\n"), rest), 0o600))
	must.Do(t, h.db.PutAccessRecording(t.Context(), unsigned))
	for id, reason := range map[string]string{forged.RecordingID: "its key " + attacker.ID() + " is not a key", unsigned.RecordingID: "its first line has none"} {
		if status, _, body, err := h.content(t, "oncall", id); err != nil || status != http.StatusConflict || !strings.Contains(body, reason) || strings.Contains(body, secretInput) {
			t.Errorf("%d: %s: %v", status, body, err)
		}
		if !strings.Contains(h.log.String(), reason) {
			t.Errorf("the log does not have %q: %s", reason, h.log.String())
		}
		status, _, body, err := h.contentWith(t, "oncall", id, "?unverified=true")
		if header, headerErr := recording.ParseHeader([]byte(strings.SplitN(body, "\n", 2)[0])); err != nil || status != http.StatusOK || headerErr != nil || !strings.HasPrefix(header.Title, "NOT VERIFIED: ") {
			t.Errorf("%d: %.200s: %v", status, body, err)
		}
	}
	if status, _, body, _ := h.contentWith(t, "operator", forged.RecordingID, "?unverified=true"); status != http.StatusForbidden {
		t.Errorf("an operator gets %d: %s", status, body)
	}

	for number, change := range []func(*database.AccessRecordingDocument){
		func(d *database.AccessRecordingDocument) { d.Name = "operator" },
		func(d *database.AccessRecordingDocument) { d.ObjectID = "object-of-operator" },
		func(d *database.AccessRecordingDocument) { d.SessionID = "session-2" },
		func(d *database.AccessRecordingDocument) { d.Reason = "another" },
		func(d *database.AccessRecordingDocument) { d.Pod = "another" },
		func(d *database.AccessRecordingDocument) { d.StartTime = d.StartTime.Add(time.Hour) },
	} {
		described := h.record(t, 10+number, "session-1", true)
		change(&described)
		must.Do(t, h.db.PutAccessRecording(t.Context(), described))
		if status, _, body, err := h.content(t, "oncall", described.RecordingID); err != nil || status != http.StatusConflict || !strings.Contains(body, "was changed") {
			t.Errorf("%+v: %d: %s: %v", described, status, body, err)
		}
	}
}

// TestRecordingsAway reads recordings that are not exported, from storage that is away, and from an admin that reads none.
func TestRecordingsAway(t *testing.T) {
	t.Parallel()
	h := newPopulated(t)
	api := h.another(h.db)
	waiting := h.record(t, 1, "session-1", false)
	must.Do(t, os.Remove(h.recordingFile(waiting.RecordingID)))
	path := "/recordings/" + waiting.RecordingID + "/content"
	if answer := ask(api, "oncall", "", http.MethodGet, path, ""); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "is exported yet") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
	must.Do(t, os.Rename(h.recordings, h.recordings+".away"))
	if answer := ask(api, "oncall", "", http.MethodGet, path, ""); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
	h.config.Recordings = nil
	if answer := ask(h.another(h.db), "oncall", "", http.MethodGet, path, ""); !strings.Contains(answer.Body.String(), "--recording-sink-dir") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}
