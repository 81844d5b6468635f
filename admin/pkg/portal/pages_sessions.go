package portal

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// sessionPages lists the pages of access sessions and of their recordings.
func (p *Portal) sessionPages() []signedInPage {
	return []signedInPage{
		{"GET /access-sessions", "access-sessions", p.accessSessions},
		{"GET /access-sessions/{session}", "access-session", p.accessSession},
		{"POST /access-sessions/{session}/end", "access-session-end", p.endAccessSession},
		{"GET /recordings", "recordings", p.recordings},
		{"GET /recordings/{recording}", "recording", p.recording},
		{"POST /recordings/{recording}/content", "recording-content", p.recordingContent},
	}
}

// clusterQuery returns the cluster of the page's URL as a query of the API.
func clusterQuery(v *view) url.Values {
	query := url.Values{}
	if cluster := v.request.URL.Query().Get("cluster"); cluster != "" {
		query.Set("cluster", cluster)
	}
	return query
}

// accessSessionsView is the content of the list of access sessions.
type accessSessionsView struct {
	adminv1.AccessSessionList
	// All is set if the list has sessions that have ended. Cluster is the identifier of the only cluster; empty for all.
	All     bool
	Cluster string
}

// accessSessions lists access sessions, the newest first.
func (p *Portal) accessSessions(w http.ResponseWriter, v *view) {
	query := clusterQuery(v)
	body := accessSessionsView{All: v.request.URL.Query().Get("show") == "all", Cluster: query.Get("cluster")}
	if !body.All {
		query.Set("open", "true")
	}
	if err := v.api.get("/access-sessions", query, &body.AccessSessionList); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "access-sessions", page{Title: "Access sessions", Section: "/access", Body: body, Crumbs: []crumb{{"Access", "/access"}}, Live: livePath + "access-sessions"})
}

// accessSessionView is the content of the page of an access session.
type accessSessionView struct {
	Session    adminv1.AccessSession
	Recordings []adminv1.Recording
	Problems   []problem
}

// Open reports whether the session can be ended.
func (s *accessSessionView) Open() bool { return s.Session.State != adminv1.AccessSessionEnded }

// sessionPath returns the path of the session of the page in the API.
func sessionPath(v *view) string {
	return "/access-sessions/" + url.PathEscape(v.request.PathValue("session"))
}

// accessSession shows an access session with its recordings.
func (p *Portal) accessSession(w http.ResponseWriter, v *view) {
	var body accessSessionView
	if err := v.api.get(sessionPath(v), nil, &body.Session); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	var list adminv1.RecordingList
	read := reader{view: v}
	read.get("Recordings", "/recordings", url.Values{"cluster": {body.Session.Cluster.UID}, "session": {body.Session.ID}}, &list)
	var err error
	if body.Problems, err = read.wait(); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Recordings = list.Items
	content := page{Title: "Session of " + body.Session.Name, Section: "/access", Body: &body, Crumbs: []crumb{{"Access", "/access"}, {"Sessions", "/access-sessions"}}}
	if body.Open() {
		content.Live = livePath + "access-sessions/" + url.PathEscape(body.Session.ID)
	}
	v.render(w, http.StatusOK, "access-session", content)
}

// endAccessSession ends an access session and shows it.
func (p *Portal) endAccessSession(w http.ResponseWriter, v *view) {
	if err := v.api.send(http.MethodDelete, sessionPath(v), nil, "", nil); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	redirect(w, sessionPath(v))
}

// recordingsView is the content of the list of recordings.
type recordingsView struct {
	adminv1.RecordingList
	Cluster string
}

// recordings lists the recordings of commands, the newest first.
func (p *Portal) recordings(w http.ResponseWriter, v *view) {
	query := clusterQuery(v)
	body := recordingsView{Cluster: query.Get("cluster")}
	if err := v.api.get("/recordings", query, &body.RecordingList); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "recordings", page{Title: "Recordings", Section: "/access", Body: body, Crumbs: []crumb{{"Access", "/access"}}})
}

// recordingView is the content of the page of a recording.
type recordingView struct {
	Recording adminv1.Recording
	// Transcript is nil until the engineer has asked for it. Broken means that the rest could not be read.
	Transcript *transcript
	Broken     bool
}

// recordingPath returns the path of the recording of the page in the API.
func recordingPath(v *view) string {
	return "/recordings/" + url.PathEscape(v.request.PathValue("recording"))
}

// recording describes a recording.
func (p *Portal) recording(w http.ResponseWriter, v *view) {
	p.showRecording(w, v, func(*recordingView) error { return nil })
}

// recordingContent shows what was typed and shown. It is the response to a form, because admin audits each such read.
func (p *Portal) recordingContent(w http.ResponseWriter, v *view) {
	p.showRecording(w, v, func(body *recordingView) error {
		body.Transcript = &transcript{}
		err := v.api.read(recordingPath(v)+"/content", body.Transcript)
		if errors.Is(err, errAborted) {
			body.Broken, err = true, nil
		}
		return err
	})
}

// showRecording shows a recording after read has added to the page.
func (p *Portal) showRecording(w http.ResponseWriter, v *view, read func(*recordingView) error) {
	var body recordingView
	err := v.api.get(recordingPath(v), nil, &body.Recording)
	if err == nil {
		err = read(&body)
	}
	if err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "recording", page{Title: "Recording of " + body.Recording.Name, Section: "/access", Body: &body,
		Crumbs: []crumb{{"Access", "/access"}, {"Recordings", "/recordings"}}})
}
