package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

const (
	// Beat is the pause between two events of a page that does not change. A browser that receives none for three times as long
	// connects again.
	Beat = 15 * time.Second
	// MaxAge is the age at which a stream ends. The browser connects again, and the rights of its user are checked.
	MaxAge = 10 * time.Minute
	// writeTimeout is the time in which a browser must read an event.
	writeTimeout = 10 * time.Second
	// reconnect is the time after which a browser connects again after the connection was lost.
	reconnect = 2 * time.Second
	// limitRetry is the time after which a browser may try again that had too many streams.
	limitRetry = 30 * time.Second
)

// The names of the events.
const (
	// eventChanged states that the page must be read again.
	eventChanged = "changed"
	// eventCurrent states that the page has not changed up to the revision.
	eventCurrent = "current"
	// eventBehind states that a source of changes cannot be read, so that the page may be outdated.
	eventBehind = "behind"
	// eventEnd states why the stream ends; see Ending.
	eventEnd = "end"
)

// Source is a source of changes.
type Source interface {
	// Fresh reports whether the source was read in the last seconds.
	Fresh() bool
}

// Page is what a page shows.
type Page struct {
	// Topics are the objects on the page, and Sources what reports their changes.
	Topics  []Topic
	Sources []Source
	// Pause is the shortest time between two events of changes, for pages that show many objects.
	Pause time.Duration
}

// fresh reports whether all changes of the page are reported.
func (p Page) fresh() bool {
	for _, source := range p.Sources {
		if !source.Fresh() {
			return false
		}
	}
	return true
}

// Stream is a request of a browser to follow a page.
type Stream struct {
	Page Page
	// Session is the ID of the session of the portal.
	Session string
	// Age is the time after which the session or the rights of its user may have ended. The stream ends then, or at MaxAge, and the browser
	// connects again.
	Age time.Duration
	// After is the revision of the page that the browser shows. Any text is allowed: the browser reads the page again if it is unknown.
	After string
	// Check returns false if the session has ended meanwhile. Serve calls it once, after changes of the session reach the stream.
	Check func() bool
}

// Ending is the content of the last event of a stream. A browser cannot read the status of a response with which a stream begins: refusals
// are events, too.
type Ending struct {
	// Message is a text for the user; empty if the stream continues elsewhere.
	Message string `json:"message"`
	// RetryAfter is when the browser may connect again, in milliseconds; 0 means never.
	RetryAfter int64 `json:"retryAfter"`
}

// endings are the last events by reason.
var endings = map[end]Ending{
	endSession:  {Message: "Your session has ended. Load the page again to sign in."},
	endRenewed:  {RetryAfter: 500},
	endShutdown: {RetryAfter: 500},
	endLimit:    {Message: "Too many pages are open. This page is not updated.", RetryAfter: limitRetry.Milliseconds()},
}

// Refuse responds with a stream that has only an end.
func (h *Hub) Refuse(w http.ResponseWriter, ending Ending) { h.refuse(w, endRefused, ending) }

// RefuseSession responds to a browser without a session.
func (h *Hub) RefuseSession(w http.ResponseWriter) { h.refuse(w, endSession, endings[endSession]) }

func (h *Hub) refuse(w http.ResponseWriter, reason end, ending Ending) {
	h.ended.WithLabelValues(string(reason)).Inc()
	_ = newWriter(w).end(ending)
}

// Serve sends the events of a page until the browser disconnects or the stream must end. The caller has checked that the user may read the
// page.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, stream Stream) {
	s := &subscription{topics: stream.Page.Topics, session: stream.Session, wake: make(chan struct{}, 1)}
	if refused := h.subscribe(s, stream.After); refused != "" {
		h.refuse(w, refused, endings[refused])
		return
	}
	defer h.unsubscribe(s)
	if !stream.Check() {
		h.RefuseSession(w)
		return
	}
	reason := h.follow(r, newWriter(w), s, stream)
	h.ended.WithLabelValues(string(reason)).Inc()
}

// follow sends events until the stream ends.
func (h *Hub) follow(r *http.Request, out *writer, s *subscription, stream Stream) end {
	age := time.NewTimer(min(stream.Age, MaxAge))
	defer age.Stop()
	beats := time.NewTicker(Beat)
	defer beats.Stop()
	beat := true                // the first event states whether the browser's page is current
	var resume <-chan time.Time // set during a pause between two events of changes
	for {
		ended, pending, revision := h.take(s, resume != nil)
		var err error
		switch {
		case ended != "":
			if err := out.end(endings[ended]); err != nil {
				return reasonOf(err)
			}
			return ended
		case pending && resume == nil:
			err = out.send(eventChanged, revision, revision)
			if stream.Page.Pause > 0 {
				resume = time.After(stream.Page.Pause)
			}
		case pending, !beat:
		case !stream.Page.fresh():
			err = out.send(eventBehind, "", "")
		default:
			err = out.send(eventCurrent, revision, revision)
		}
		if err != nil {
			return reasonOf(err)
		}
		beat = false
		select {
		case <-r.Context().Done():
			return endClosed
		case <-age.C:
			if err := out.end(endings[endRenewed]); err != nil {
				return reasonOf(err)
			}
			return endRenewed
		case <-s.wake:
		case <-resume:
			resume = nil
		case <-beats.C:
			beat = true
		}
	}
}

// reasonOf returns the reason for which a stream ends after a failed write.
func reasonOf(err error) end {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return endSlow
	}
	return endClosed
}

// writer writes events. The timeouts of the server do not apply to it: each event has its own.
type writer struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	begun      bool
	err        error
}

// newWriter begins a response that is a stream of events.
func newWriter(w http.ResponseWriter) *writer {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // a proxy must not collect events
	out := &writer{w: w, controller: http.NewResponseController(w)}
	out.err = out.controller.SetReadDeadline(time.Time{})
	return out
}

// send writes an event. Without an ID, the browser keeps that of the event before.
func (o *writer) send(event, id, data string) error {
	if o.err != nil {
		return o.err
	}
	text := "event: " + event + "\ndata: " + data + "\n\n"
	if id != "" {
		text = "id: " + id + "\n" + text
	}
	if !o.begun {
		o.begun = true
		text = fmt.Sprintf("retry: %d\n", reconnect.Milliseconds()) + text
	}
	if o.err = o.controller.SetWriteDeadline(time.Now().Add(writeTimeout)); o.err != nil {
		return o.err
	}
	if _, o.err = o.w.Write([]byte(text)); o.err == nil {
		o.err = o.controller.Flush()
	}
	if o.err != nil {
		o.err = fmt.Errorf("sending an event: %w", o.err)
	}
	return o.err
}

// end writes the last event.
func (o *writer) end(ending Ending) error {
	data, err := json.Marshal(ending)
	if err != nil {
		return err
	}
	return o.send(eventEnd, "", string(data))
}
