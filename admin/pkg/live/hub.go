// Package live notifies browsers that what a page shows has changed. It follows each source of changes once per process, and sends an event
// to every open page that shows the changed object.
//
// An event contains no data: only that something has changed, and a revision. The browser then reads the page again, with the rights that
// its user has at that time. Revisions are those of one process: a browser that returns with the revision of another process, or with one
// that is too old, reads its page again.
package live

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds of a Hub.
const (
	// MaxStreams is the number of open streams of a process, and MaxSessionStreams that of one session. Browsers close the streams of
	// pages that are not visible.
	MaxStreams        = 2000
	MaxSessionStreams = 10
	// maxRemembered is the number of changes of which the revision is known. A browser that returns after more changes reads its page again.
	maxRemembered = 4096
)

// Topic names an object, or a set of objects, that changes.
type Topic string

// end is the reason for which a stream ends, and the label of the metric.
type end string

// The reasons.
const (
	endClosed   end = "closed"   // the browser closed the connection
	endSlow     end = "slow"     // the browser did not read in time
	endSession  end = "session"  // the session has ended
	endRenewed  end = "renewed"  // the rights must be checked again
	endShutdown end = "shutdown" // the process stops
	endLimit    end = "limit"    // too many streams are open
	endRefused  end = "refused"  // the user may not read the page
)

// Hub sends changes to the open streams. It is safe for concurrent use.
type Hub struct {
	epoch string
	open  prometheus.Gauge
	ended *prometheus.CounterVec

	mu       sync.Mutex
	revision uint64
	// changed has the revision of the last change of each topic. The changes up to the revision floor are not known.
	changed map[Topic]uint64
	floor   uint64
	// recent are the changes in order, to forget the oldest ones.
	recent      []change
	subscribers map[Topic]map[*subscription]bool
	// sessions are the open streams by session of the portal. streams is their number.
	sessions map[string]map[*subscription]bool
	streams  int
	released bool
}

// change is a change of a topic.
type change struct {
	topic    Topic
	revision uint64
}

// subscription is the part of a stream that the hub changes.
type subscription struct {
	topics  []Topic
	session string
	// wake has room for one signal. A reader that is behind receives one event for many changes.
	wake chan struct{}
	// pending is set if a topic has changed since the last event, and ended if the stream must end. The mutex of the hub protects both.
	pending bool
	ended   end
}

// NewHub returns a Hub without streams. It registers its metrics.
func NewHub(metrics prometheus.Registerer) *Hub {
	h := &Hub{epoch: rand.Text()[:10], changed: map[Topic]uint64{}, subscribers: map[Topic]map[*subscription]bool{}, sessions: map[string]map[*subscription]bool{},
		open:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "admin_portal_streams", Help: "Open streams of events, one for each visible page of the portal that updates itself."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "admin_portal_streams_ended_total", Help: "Streams of events that have ended, or that the portal refused, by reason: closed, slow, session, renewed, shutdown, limit or refused."}, []string{"reason"}),
	}
	for _, reason := range []end{endClosed, endSlow, endSession, endRenewed, endShutdown, endLimit, endRefused} {
		h.ended.WithLabelValues(string(reason))
	}
	metrics.MustRegister(h.open, h.ended)
	return h
}

// Revision returns the current revision. A page that was read after this call contains all changes up to it.
func (h *Hub) Revision() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.format()
}

// format returns the current revision as text.
func (h *Hub) format() string { return h.epoch + "." + strconv.FormatUint(h.revision, 10) }

// Publish sends the change of topics to their streams.
func (h *Hub) Publish(topics ...Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revision++
	for _, topic := range topics {
		h.changed[topic] = h.revision
		h.recent = append(h.recent, change{topic, h.revision})
		for s := range h.subscribers[topic] {
			s.pending = true
			s.signal()
		}
	}
	for len(h.recent) > maxRemembered {
		oldest := h.recent[0]
		h.recent = h.recent[1:]
		if h.changed[oldest.topic] == oldest.revision {
			delete(h.changed, oldest.topic)
			h.floor = oldest.revision
		}
	}
}

// PublishAll sends a change to all streams: a source does not know what has changed.
func (h *Hub) PublishAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revision++
	h.floor, h.recent = h.revision, nil
	clear(h.changed)
	for _, streams := range h.sessions {
		for s := range streams {
			s.pending = true
			s.signal()
		}
	}
}

// changedSince reports whether a topic may have changed after a revision in text form.
func (h *Hub) changedSince(after string, topics []Topic) bool {
	epoch, number, _ := strings.Cut(after, ".")
	revision, err := strconv.ParseUint(number, 10, 64)
	if epoch != h.epoch || err != nil || revision < h.floor || revision > h.revision {
		return true
	}
	for _, topic := range topics {
		if h.changed[topic] > revision {
			return true
		}
	}
	return false
}

// subscribe adds a stream. after is the revision of the page that the browser shows. The reason is not empty if the hub refuses the stream.
func (h *Hub) subscribe(s *subscription, after string) (refused end) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.released:
		return endShutdown
	case h.streams >= MaxStreams, len(h.sessions[s.session]) >= MaxSessionStreams:
		return endLimit
	}
	add(h.sessions, s.session, s)
	for _, topic := range s.topics {
		add(h.subscribers, topic, s)
	}
	h.streams++
	h.open.Set(float64(h.streams))
	s.pending = h.changedSince(after, s.topics)
	return ""
}

// unsubscribe removes a stream.
func (h *Hub) unsubscribe(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	remove(h.sessions, s.session, s)
	for _, topic := range s.topics {
		remove(h.subscribers, topic, s)
	}
	h.streams--
	h.open.Set(float64(h.streams))
}

// add adds a stream to those of a key, and remove removes it.
func add[K comparable](sets map[K]map[*subscription]bool, key K, s *subscription) {
	if sets[key] == nil {
		sets[key] = map[*subscription]bool{}
	}
	sets[key][s] = true
}

func remove[K comparable](sets map[K]map[*subscription]bool, key K, s *subscription) {
	if delete(sets[key], s); len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// take returns whether the stream must end, and whether an event is pending, with the revision that it has. It clears the event if hold is
// false.
func (h *Hub) take(s *subscription, hold bool) (ended end, pending bool, revision string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pending = s.pending
	if !hold {
		s.pending = false
	}
	return s.ended, pending, h.format()
}

// signal wakes the stream.
func (s *subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // a signal waits already
	}
}

// EndSession ends the streams of a session that was ended.
func (h *Hub) EndSession(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finish(id, endSession)
}

// finish ends the streams of a session.
func (h *Hub) finish(session string, reason end) {
	for s := range h.sessions[session] {
		s.ended = reason
		s.signal()
	}
}

// Release ends all streams and refuses others, because the process stops. Browsers connect to another replica.
func (h *Hub) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = true
	for session := range h.sessions {
		h.finish(session, endShutdown)
	}
}
